const ISO = /^(?<year>\d{4})-(?<month>\d\d)-(?<day>\d\d)(?:[T ](?<hour>\d\d):(?<minute>\d\d)(?::(?<second>\d\d(?:\.\d{1,9})?))?(?:Z|(?<sign>[+-])(?<east>\d\d)(?::?(?<more>\d\d))?)?)?$/;
const POINTS = /^(?<day>\d{1,2})\.(?<month>\d{1,2})\.(?<year>\d{4})(?: (?<hour>\d{1,2}):(?<minute>\d\d)(?::(?<second>\d\d(?:\.\d{1,9})?))?)?$/;
const TIME = /^(?<hour>\d{1,2}):(?<minute>\d\d)(?::(?<second>\d\d(?:\.\d{1,9})?))?(?: ?(?<half>[AaPp])[Mm])?$/;
const END_OF_DAY = /([T ])24:00(?::00(?:\.0+)?)?(?![:.])/;
const MONTHS = [
  ..."january february march april may june".split(" "),
  ..."july august september october november december".split(" "),
];
const forms = new Map(
  columns.map(({ name, dates }) => [name, [ISO, POINTS, TIME, ...(dates ? [RegExp(dates)] : [])]]),
);

/* Seconds since 1970 of a number, a Date or a text (in UTC if it has no offset); NaN for others. */
readers.date = (value, { name }) => {
  if (typeof value === "number") return value;
  if (value instanceof Date) return value.getTime() / 1000;
  const text = String(value).replace(END_OF_DAY, (_, mark) => `${mark}00:00`);
  const days = text === String(value) ? 0 : 1;
  const match = forms.get(name).map((form) => form.exec(text)).find(Boolean);
  if (!match) return NaN;
  const { short, name: word, half, sign = "+", east = 0, more = 0, ...parts } = match.groups;
  let { year = 1970, month = 1, day = 1, hour = 0, minute = 0, second = 0, digits = 0 } = parts;
  if (short) year = Number(short) + (short >= 69 ? 1900 : 2000);
  if (word) month = MONTHS.findIndex((month) => month.startsWith(word.toLowerCase())) + 1;
  if (half) hour = hour >= 1 && hour <= 12 ? (hour % 12) + (/p/i.test(half) ? 12 : 0) : NaN;
  const start = new Date(0);
  start.setUTCFullYear(year, month - 1, day);
  const exists = start.getUTCMonth() === month - 1 && start.getUTCDate() === Number(day);
  if (!exists || !(hour <= 23) || minute > 59 || second >= 60) return NaN;
  const offset = Number(`${sign}1`) * (3600 * east + 60 * more);
  const clock = 3600 * hour + 60 * minute + Number(second) + Number(`0.${digits}`);
  return start.getTime() / 1000 + 86400 * days + clock - offset;
};
