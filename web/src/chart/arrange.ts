/** Columns of an answer as what a chart draws: sorted by x, gaps for NULL, one line a group. */

export interface Drawn {
  x: number[];
  lines: DrawnLine[];
  /** Groups that have no line, since there are more than colours. */
  left: number;
}

export interface DrawnLine {
  label: string;
  y: (number | null)[];
  /** Which group it is of, and which of the columns. */
  group: number;
  column: number;
}

const value = (y: number) => (Number.isFinite(y) ? y : null);

/** Whole columns as lines. */
export function asLines(x: Float64Array, columns: Float64Array[], labels: string[]): Drawn {
  const order = sorted(x);
  return {
    x: order.map((i) => x[i] as number),
    lines: columns.map((y, at) => ({ label: labels[at] ?? "", y: order.map((i) => value(y[i] as number)), group: at, column: at })),
    left: 0,
  };
}

/**
 * The columns of text by which rows have to be grouped so that none shares its x with another of its
 * group: as few as possible, from the first on.  A column in which no value occurs twice groups nothing.
 */
export function groupingOf(x: Float64Array, texts: (string | null)[][]): number[] {
  const chosen: number[] = [];
  for (const [i, column] of texts.entries()) {
    if (new Set(column).size === x.length) continue;
    if (chosen.length && new Set(keysOf([...x].map(String), ...chosen.map((k) => texts[k] ?? []))).size === x.length) break;
    chosen.push(i);
  }
  return chosen;
}

/** The key of each row, of several columns. */
export function keysOf(...columns: (string | null)[][]): string[] {
  return (columns[0] ?? []).map((_, row) => columns.map((column) => column[row] ?? "NULL").join(" · "));
}

/** Columns as a line for each key; the longest `most` of the groups. */
export function asGroups(x: Float64Array, columns: Float64Array[], labels: string[], keys: string[], most: number): Drawn {
  const members = new Map<string, number[]>();
  for (const i of sorted(x)) {
    const key = keys[i] as string;
    const found = members.get(key);
    if (found) found.push(i);
    else members.set(key, [i]);
  }
  const chosen = [...members].sort((a, b) => b[1].length - a[1].length).slice(0, most);
  const xs = [...new Set(chosen.flatMap(([, rows]) => rows.map((i) => x[i] as number)))].sort((a, b) => a - b);
  const place = new Map(xs.map((at, i) => [at, i]));
  const lines = columns.flatMap((y, column) =>
    chosen.map(([key, rows], group) => {
      const ys = new Array<number | null | undefined>(xs.length).fill(undefined);
      for (const i of rows) ys[place.get(x[i] as number) as number] = value(y[i] as number);
      return { label: columns.length > 1 ? `${key} · ${labels[column]}` : key, y: ys as (number | null)[], group, column };
    }),
  );
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
