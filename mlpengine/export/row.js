/* A row as the numbers that the model takes, and what these numbers give. */
const model = DESCRIPTION;

/* The columns of a row, each with its name, its kind, and whether it may be a gap. */
export const columns = model.columns;

/* The classes or labels in their order, or the names of the predicted numbers. */
export const names = model.names;

/* The levels that an interval or a set may have; empty if there is none. */
export const levels = model.levels;

const NUMBER = /^[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?$/i;
const gaps = new Set(model.gaps);
const key = (level, numeric) => (numeric && NUMBER.test(level) ? Number(level) : String(level));
const codes = new Map(
  columns.map(({ name, levels = [], numeric }) => [
    name,
    new Map(levels.map((level, code) => [key(level, numeric), code])),
  ]),
);

const ISO = /^(?<year>\d{4})-(?<month>\d\d)-(?<day>\d\d)(?:[T ](?<hour>\d\d):(?<minute>\d\d)(?::(?<second>\d\d(?:\.\d{1,6})?))?(?:Z|(?<sign>[+-])(?<east>\d\d):?(?<more>\d\d))?)?$/;
const POINTS = /^(?<day>\d{1,2})\.(?<month>\d{1,2})\.(?<year>\d{4})(?: (?<hour>\d{1,2}):(?<minute>\d\d)(?::(?<second>\d\d))?)?$/;
const TIME = /^(?<hour>\d{1,2}):(?<minute>\d\d)(?::(?<second>\d\d))?(?: ?(?<half>[AaPp])[Mm])?$/;
const MONTHS = [
  ..."january february march april may june".split(" "),
  ..."july august september october november december".split(" "),
];
const forms = new Map(
  columns.map(({ name, dates }) => [name, [ISO, POINTS, TIME, ...(dates ? [RegExp(dates)] : [])]]),
);

/* Seconds since 1970, of a number, a Date, or a text without an offset in UTC; NaN for others. */
function seconds(value, dates) {
  if (typeof value === "number") return value;
  if (value instanceof Date) return value.getTime() / 1000;
  const match = dates.map((form) => form.exec(String(value))).find(Boolean);
  if (!match) return NaN;
  const { short, name, half, sign = "+", east = 0, more = 0, ...parts } = match.groups;
  let { year = 1970, month = 1, day = 1, hour = 0, minute = 0, second = 0 } = parts;
  if (short) year = Number(short) + (short >= 69 ? 1900 : 2000);
  if (name) month = MONTHS.findIndex((month) => month.startsWith(name.toLowerCase())) + 1;
  if (half) hour = hour >= 1 && hour <= 12 ? (hour % 12) + (/p/i.test(half) ? 12 : 0) : NaN;
  const start = new Date(0);
  start.setUTCFullYear(year, month - 1, day);
  const exists = start.getUTCMonth() === month - 1 && start.getUTCDate() === Number(day);
  if (!exists || !(hour <= 23) || minute > 59 || second >= 60) return NaN;
  const offset = Number(`${sign}1`) * (3600 * east + 60 * more);
  return start.getTime() / 1000 + 3600 * hour + 60 * minute + Number(second) - offset;
}

function number(value) {
  if (typeof value === "boolean") return Number(value);
  if (typeof value !== "string") return typeof value === "number" ? value : NaN;
  const word = { true: 1, false: 0 }[value.toLowerCase()];
  return word ?? (NUMBER.test(value) ? Number(value) : NaN);
}

/* Return the number of a cell: NaN for a gap, -1 for a level that training did not see. */
function read(column, cell) {
  const value = typeof cell === "string" ? cell.trim() : cell;
  const where = `predict: column ${JSON.stringify(column.name)}`;
  if (value === undefined) throw new TypeError(`${where} is needed; null stands for a gap`);
  if (value === null || value !== value || gaps.has(value)) {
    if (!column.gaps) throw new TypeError(`${where} needs a value, as there was no gap in training`);
    return NaN;
  }
  if (column.kind === "category") return codes.get(column.name).get(key(value, column.numeric)) ?? -1;
  const result = column.kind === "date" ? seconds(value, forms.get(column.name)) : number(value);
  if (!(Math.abs(result) <= 1e100)) {
    const kind = column.kind === "date" ? "date" : "number";
    throw new TypeError(`${where} needs a ${kind} (got ${/number|bigint/.test(typeof cell) ? cell : JSON.stringify(cell)})`);
  }
  return result;
}

/* The size of errors at a prediction: linear between places, constant beyond them. */
function scaleAt({ places, scales }, value) {
  const last = places.length - 1;
  const right = places.findIndex((place) => place >= value);
  if (right <= 0) return right ? scales[last] : scales[0];
  const share = (value - places[right - 1]) / (places[right] - places[right - 1]);
  return scales[right - 1] + share * (scales[right] - scales[right - 1]);
}

function intervals(out, place) {
  const [least, greatest] = model.range;
  return model.intervals.map(({ name, output, ends, ...scale }) => {
    const [low, high] = ends[place];
    const size = scaleAt(scale, out[output]);
    const clipped = (value) => Math.min(Math.max(value, least ?? -Infinity), greatest ?? Infinity);
    return [name, [clipped(out[output] + low * size), clipped(out[output] + high * size)]];
  });
}

/* Predict a row, an object of cells by column: { label, probabilities, set } of a class,
   { labels, probabilities } of several labels, or { values, interval } of numbers, where the
   interval holds the share `level` of new targets, and the set that of new classes, if the model
   was trained with folds. */
export function predict(row, { level = 0.9 } = {}) {
  if (Object(row) !== row) throw new TypeError(`predict: a row is an object of cells by column (got ${row})`);
  const cells = columns.map((c) => read(c, Object.hasOwn(row, c.name) ? row[c.name] : undefined));
  const out = run(cells);
  if (!out) throw new RangeError("predict: the row cannot be used, as its prediction is not finite");
  const named = Object.fromEntries(names.map((name, i) => [name, out[i]]));
  const place = levels.indexOf(level);
  if (levels.length && place < 0) throw new RangeError(`predict: level must be one of ${levels}`);
  if (model.task === "numbers") {
    if (place < 0) return { values: named };
    return { values: named, interval: Object.fromEntries(intervals(out, place)) };
  }
  if (model.task === "labels") {
    const labels = Object.fromEntries(names.map((name, i) => [name, Number(out[i] > 0.5)]));
    return { labels, probabilities: named };
  }
  const best = out.reduce((first, chance, i) => (chance > out[first] ? i : first), 0);
  const answer = { label: names[best], probabilities: named };
  if (place < 0) return answer;
  return { ...answer, set: names.filter((_, i) => out[i] >= model.lowest[place]) };
}
