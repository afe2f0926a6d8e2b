/* Reads the cells of a row as numbers, and predicts from the numbers. */
const model = DESCRIPTION;

/* The columns of a row, each with its name, its kind, and whether its cells may be missing. */
export const columns = model.columns;

/* The classes or labels in their order, or the names of the predicted numbers. */
export const names = model.names;

/* The levels that an interval or a set may have; empty if there is none. */
export const levels = model.levels;

const NUMBER = /^[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?$/i;
/* A text, or the usual text of the number that it writes, such as 100000 for 1e5. */
const plain = (text) => (NUMBER.test(text) ? String(Number(text)) : String(text));
const gaps = new Set(model.gaps);
const numberGaps = new Set(model.gaps.map(plain));
/* The key of a level or cell; a column of numbers, booleans or dates takes every way to write one. */
function key(level, numeric) {
  if (!numeric) return String(level);
  return NUMBER.test(level) ? Number(level) : String(level).toLowerCase();
}
const codes = new Map(
  columns.map(({ name, levels = [], seconds, numeric }) => [
    name,
    new Map((seconds ?? levels).map((level, code) => [key(level, numeric), code])),
  ]),
);

/* A text without leading and trailing blanks, the characters that Python's str.strip removes. */
function strip(text) {
  const blank = /[\t-\r\x1c-\x1f\x85\p{Z}]/u;
  let [start, end] = [0, text.length];
  while (start < end && blank.test(text[start])) start++;
  while (start < end && blank.test(text[end - 1])) end--;
  return text.slice(start, end);
}

function number(value) {
  if (typeof value === "boolean") return Number(value);
  if (typeof value !== "string") return typeof value === "number" ? value : NaN;
  const word = { true: 1, false: 0 }[value.toLowerCase()];
  return word ?? (NUMBER.test(value) ? Number(value) : NaN);
}

/* Functions that read a cell, by the kind of its column; `number` reads the other kinds. */
const readers = {
  category: (value, column) => {
    const cell = column.seconds ? readers.date(value, column) : value;
    return codes.get(column.name).get(key(cell, column.numeric)) ?? -1;
  },
};

/* Return the number of a cell: NaN for a gap, -1 for a level that training did not see. */
function read(column, cell) {
  const value = typeof cell === "string" ? strip(cell) : cell;
  const where = `predict: column ${JSON.stringify(column.name)}`;
  if (value === undefined) throw new TypeError(`${where} is needed; null stands for a gap`);
  const isNumber = column.numeric || column.kind === "number";
  const isGap = isNumber ? numberGaps.has(plain(value)) : gaps.has(String(value));
  if (value === null || value !== value || (isGap && !codes.get(column.name)?.has(value))) {
    if (!column.gaps) throw new TypeError(`${where} needs a value, as there was no gap in training`);
    return NaN;
  }
  const result = (readers[column.kind] ?? number)(value, column);
  if (!(Math.abs(result) <= 1e100)) {
    const kind = column.kind === "date" ? "date" : "number";
    throw new TypeError(`${where} needs a ${kind} (got ${/number|bigint/.test(typeof cell) ? cell : JSON.stringify(cell)})`);
  }
  return result;
}

/* Functions that return the answer of a task, from the outputs, the outputs by name, and the
   index of the level in `levels`. */
const answers = {
  numbers: (out, named) => ({ values: named }),
  labels: (out, named) => ({
    labels: Object.fromEntries(names.map((name, i) => [name, Number(out[i] > 0.5)])),
    probabilities: named,
  }),
  classes: (out, named, place) => {
    const { value, positive } = model.threshold ?? {};
    let best = out.reduce((first, chance, i) => (chance > out[first] ? i : first), 0);
    if (model.threshold) best = Math.abs(positive - (out[positive] <= value));
    else if (model.median) {
      best = 0;
      for (let below = out[0]; below < 0.5 && best < out.length - 1; below += out[best]) best += 1;
    }
    const answer = { label: names[best], probabilities: named };
    if (place < 0) return answer;
    return { ...answer, set: names.filter((_, i) => out[i] >= model.lowest[place]) };
  },
};

/* Predict a row, an object of values by column.  Returns { label, probabilities, set } for classes,
   { labels, probabilities } for several labels, or { values, interval } for numbers.  Only models
   that were trained with folds have a set or an interval.  A set contains the true class of a new
   row with probability `level`, and an interval contains the target. */
export function predict(row, { level = 0.9 } = {}) {
  if (Object(row) !== row) throw new TypeError(`predict: a row is an object of values by column (got ${row})`);
  const cells = columns.map((c) => read(c, Object.hasOwn(row, c.name) ? row[c.name] : undefined));
  const out = run(cells);
  if (!out) throw new RangeError("predict: the row cannot be used, as its prediction is not finite");
  const named = Object.fromEntries(names.map((name, i) => [name, out[i]]));
  const place = levels.indexOf(level);
  if (levels.length && place < 0) throw new RangeError(`predict: level must be one of ${levels}`);
  return answers[model.task](out, named, place);
}
