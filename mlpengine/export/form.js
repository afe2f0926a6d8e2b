/* Predicts from the values of the form after each change. */
const form = document.querySelector("form");
const shown = document.querySelector("#prediction");
const digits = new Intl.NumberFormat("en", { maximumSignificantDigits: 6 });

function line(tag, text, kind) {
  const made = document.createElement(tag);
  made.textContent = text;
  if (kind) made.className = kind;
  return made;
}

function table(title, rows) {
  const made = document.createElement("table");
  made.append(line("caption", title));
  for (const cells of rows) {
    const row = made.insertRow();
    const head = line("th", cells[0]);
    head.scope = "row";
    row.append(head, line("td", cells[1], "n"));
  }
  return made;
}

function answer(row) {
  const { label, labels, probabilities, set, values, interval } = predict(row);
  const ordered = (names) => names.map((name) => [name, `${(100 * probabilities[name]).toFixed(1)} %`]);
  if (values) {
    return Object.entries(values).flatMap(([name, value]) => [
      line("p", `${name}: ${digits.format(value)}`, "big"),
      ...(interval?.[name]
        ? [line("p", `9 of 10 such values are between ${interval[name].map((end) => digits.format(end)).join(" and ")}`)]
        : []),
    ]);
  }
  if (labels) return [table("Probability of each label", ordered(names))];
  const sorted = [...names].sort((a, b) => probabilities[b] - probabilities[a]);
  const likely = sorted.filter((name) => set?.includes(name)).join(", ");
  const inside = likely
    ? `For 9 of 10 such rows the class is in this set: ${likely}`
    : "An unusual row: 9 of 10 rows have a true class that is more probable than each class here.";
  return [
    line("p", String(label), "big"),
    ...(set ? [line("p", inside)] : []),
    table("Probability of each class", ordered(sorted)),
  ];
}

/* Returns the Shapley value of each column for output k, and its standard error.  For each
   background row, the columns change to the given cells in a random order and in its reverse. */
function contributions(cells, k) {
  const sums = cells.map(() => [0, 0]);
  let seed = 1;
  const random = () => (seed = (seed * 48271) % 2147483647) / 2147483647;
  for (const usual of background) {
    const start = columns.map((column, i) => read(column, usual[i]));
    const order = [...cells.keys()];
    for (let i = order.length - 1; i > 0; i--) {
      const j = Math.floor(random() * (i + 1));
      [order[i], order[j]] = [order[j], order[i]];
    }
    const rises = cells.map(() => 0);
    for (const turn of [order, [...order].reverse()]) {
      const mixed = [...start];
      let before = run(mixed)[k];
      for (const i of turn) {
        mixed[i] = cells[i];
        const after = run(mixed)[k];
        rises[i] += (after - before) / 2;
        before = after;
      }
    }
    rises.forEach((rise, i) => {
      sums[i][0] += rise;
      sums[i][1] += rise * rise;
    });
  }
  const count = background.length;
  return sums.map(([sum, squares]) => {
    const mean = sum / count;
    return [mean, Math.sqrt(Math.max(0, squares / count - mean * mean) / (count - 1))];
  });
}

function explain(row) {
  const cells = columns.map((column) => read(column, row[column.name]));
  const out = run(cells);
  const { values, label } = predict(row);
  const k = values ? 0 : label === undefined ? out.indexOf(Math.max(...out)) : names.indexOf(label);
  const each = contributions(cells, k);
  const total = each.reduce((sum, [mean]) => sum + mean, 0);
  const text = (value) => (values ? digits.format(Number(value.toPrecision(3))) : `${(100 * value).toFixed(1)} %`);
  const moved = columns.map(({ name }, i) => [name, ...each[i]]).sort((a, b) => Math.abs(b[1]) - Math.abs(a[1]));
  const of = values ? names[k] : `the probability of ${names[k]}`;
  return table(`How the columns move ${of} from its mean over usual rows`, [
    ["mean over usual rows", text(out[k] - total)],
    ...moved.map(([name, mean, error]) => [name, `${mean < 0 ? "" : "+"}${text(mean)} ± ${text(error)}`]),
    ["this row", text(out[k])],
  ]);
}

function update() {
  const cells = columns.map(({ name }, i) => [name, form.elements[`c${i}`].value]);
  const row = Object.fromEntries(cells.map(([name, cell]) => [name, cell === "" ? null : cell]));
  try {
    shown.replaceChildren(...answer(row));
    if (reasons.open) reasons.lastElementChild.replaceChildren(explain(row));
  } catch (error) {
    shown.replaceChildren(line("p", error.message.replace("predict: ", ""), "odd"));
    reasons.lastElementChild.replaceChildren();
  }
}

const reasons = document.querySelector("#reasons");
reasons.hidden = !background.length;
reasons.addEventListener("toggle", update);
form.addEventListener("input", update);
form.addEventListener("submit", (event) => event.preventDefault());
update();
