// A line of a chart as an SVG path. Pure.

export const WIDTH = 600;
export const HEIGHT = 120;

/** Points of a line, in pieces where values are missing. */
export function pathOf(values: readonly (number | null)[], most: number): string {
  const step = values.length < 2 ? 0 : WIDTH / (values.length - 1);
  let isOn = false;
  return values
    .flatMap((value, at) => {
      if (value === null) {
        isOn = false;
        return [];
      }
      const y = HEIGHT - (most === 0 ? 0 : (value / most) * (HEIGHT - 4)) - 2;
      const command = isOn ? 'L' : 'M';
      isOn = true;
      return [`${command}${(at * step).toFixed(1)} ${y.toFixed(1)}`];
    })
    .join(' ');
}
