/** Columns of an answer as what a chart draws: sorted by x, gaps for NULL, one line a group. */

export interface Drawn {
  x: number[];
  lines: { label: string; y: (number | null)[] }[];
  /** Groups that have no line, since there are more than colours. */
  left: number;
}

const value = (y: number) => (Number.isFinite(y) ? y : null);

/** Whole columns as lines. */
export function asLines(x: Float64Array, columns: Float64Array[], labels: string[]): Drawn {
  const order = sorted(x);
  return {
    x: order.map((i) => x[i] as number),
    lines: columns.map((y, at) => ({ label: labels[at] ?? "", y: order.map((i) => value(y[i] as number)) })),
    left: 0,
  };
}

/** One column as a line for each value of a key; the longest `most` of them. */
export function asGroups(x: Float64Array, y: Float64Array, keys: (string | null)[], most: number): Drawn {
  const members = new Map<string, number[]>();
  for (const i of sorted(x)) {
    const key = keys[i] ?? "NULL";
    const found = members.get(key);
    if (found) found.push(i);
    else members.set(key, [i]);
  }
  const chosen = [...members].sort((a, b) => b[1].length - a[1].length).slice(0, most);
  const xs = [...new Set(chosen.flatMap(([, rows]) => rows.map((i) => x[i] as number)))].sort((a, b) => a - b);
  const place = new Map(xs.map((at, i) => [at, i]));
  const lines = chosen.map(([label, rows]) => {
    const ys = new Array<number | null | undefined>(xs.length).fill(undefined);
    for (const i of rows) ys[place.get(x[i] as number) as number] = value(y[i] as number);
    return { label, y: ys as (number | null)[] };
  });
  return { x: xs, lines, left: members.size - chosen.length };
}

function sorted(x: Float64Array): number[] {
  const order = Array.from(x.keys()).filter((i) => Number.isFinite(x[i]));
  let rising = true;
  for (let i = 1; rising && i < order.length; i += 1) {
    rising = (x[order[i - 1] as number] as number) <= (x[order[i] as number] as number);
  }
  return rising ? order : order.sort((a, b) => (x[a] as number) - (x[b] as number));
}
