/* The scale of the errors at a predicted value: linear between places, constant beyond them. */
function scaleAt({ places, scales }, value) {
  const last = places.length - 1;
  const right = places.findIndex((place) => place >= value);
  if (right <= 0) return right ? scales[last] : scales[0];
  const share = (value - places[right - 1]) / (places[right] - places[right - 1]);
  return scales[right - 1] + share * (scales[right] - scales[right - 1]);
}

answers.numbers = (out, named, place) => {
  const [least, greatest] = model.range;
  const ends = model.intervals.map(({ name, output, ends, ...scale }) => {
    const [low, high] = ends[place];
    const size = scaleAt(scale, out[output]);
    const clipped = (value) => Math.min(Math.max(value, least ?? -Infinity), greatest ?? Infinity);
    return [name, [clipped(out[output] + low * size), clipped(out[output] + high * size)]];
  });
  return { values: named, interval: Object.fromEntries(ends) };
};
