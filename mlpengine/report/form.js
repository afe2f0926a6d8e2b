/* The prediction of what stands in the form, whenever that changes. */
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
  const likely = sorted.filter((name) => set?.includes(name)).join(", ") || "no class";
  return [
    line("p", String(label), "big"),
    ...(set ? [line("p", `For 9 of 10 such rows the class is in this set: ${likely}`)] : []),
    table("Probability of each class", ordered(sorted)),
  ];
}

function update() {
  const cells = columns.map(({ name }, i) => [name, form.elements[`c${i}`].value]);
  const row = Object.fromEntries(cells.map(([name, cell]) => [name, cell === "" ? null : cell]));
  try {
    shown.replaceChildren(...answer(row));
  } catch (error) {
    shown.replaceChildren(line("p", error.message.replace("predict: ", ""), "odd"));
  }
}

form.addEventListener("input", update);
form.addEventListener("submit", (event) => event.preventDefault());
update();
