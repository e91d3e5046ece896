/** Places of matches in a timeline: lanes in which no two overlap, and marks for variables. */

export interface Span {
  first: number;
  last: number;
}

/**
 * The lane of each span: the first that is free, in order of begin.
 *
 * Spans of one group stand in lanes of their own, so that a lane can have the group's name.
 */
export function lanesOf<T extends Span>(spans: readonly T[], groupOf: (span: T) => string = () => ""): { lane: number[]; groups: string[] } {
  const lane = new Array<number>(spans.length).fill(0);
  const members = new Map<string, number[]>();
  spans.forEach((span, i) => {
    const key = groupOf(span);
    const found = members.get(key);
    if (found) found.push(i);
    else members.set(key, [i]);
  });
  const groups: string[] = [];
  for (const [key, indexes] of members) {
    const base = groups.length;
    const free: number[] = [];
    for (const i of indexes.sort((a, b) => (spans[a] as T).first - (spans[b] as T).first)) {
      const span = spans[i] as T;
      let at = free.findIndex((until) => until < span.first);
      if (at < 0) at = free.push(-Infinity) - 1;
      free[at] = span.last;
      lane[i] = base + at;
    }
    for (let i = 0; i < free.length; i += 1) groups.push(key);
  }
  return { lane, groups };
}

/**
 * Where marks of a lane stand, in steps from its middle (0, -1, 1, -2 …), so that none covers another;
 * null for one that has no place.
 */
export function placesOfMarks(xs: readonly number[], rows: number, apart: number): (number | null)[] {
  const until = new Array<number>(Math.max(1, rows)).fill(-Infinity);
  const places = new Array<number | null>(xs.length).fill(null);
  for (const i of [...xs.keys()].sort((a, b) => (xs[a] as number) - (xs[b] as number))) {
    const x = xs[i] as number;
    const row = until.findIndex((taken) => taken + apart <= x);
    if (row < 0) continue;
    until[row] = x;
    places[i] = Math.ceil(row / 2) * (row % 2 ? -1 : 1) || 0;
  }
  return places;
}

export type Shape = "circle" | "square" | "triangle" | "diamond" | "cross" | "star" | "bar";
export const SHAPES: Shape[] = ["circle", "square", "triangle", "diamond", "cross", "star", "bar"];
export const GLYPHS: Record<Shape, string> = { circle: "●", square: "■", triangle: "▲", diamond: "◆", cross: "✕", star: "★", bar: "▮" };

/** Draw a mark; its shape says the variable as well as its colour does. */
export function mark(pen: CanvasRenderingContext2D, shape: Shape, x: number, y: number, size: number): void {
  pen.beginPath();
  if (shape === "circle") pen.arc(x, y, size, 0, 2 * Math.PI);
  else if (shape === "square") pen.rect(x - size * 0.9, y - size * 0.9, size * 1.8, size * 1.8);
  else if (shape === "bar") pen.rect(x - size * 0.4, y - size * 1.2, size * 0.8, size * 2.4);
  else if (shape === "cross") {
    for (const turn of [-1, 1]) {
      pen.moveTo(x - size, y - turn * size);
      pen.lineTo(x + size, y + turn * size);
    }
    pen.lineWidth = size * 0.7;
    pen.strokeStyle = pen.fillStyle;
    pen.stroke();
    return;
  } else {
    const corners = { triangle: 3, diamond: 4, star: 10 }[shape];
    for (let i = 0; i < corners; i += 1) {
      const angle = -Math.PI / 2 + (i * 2 * Math.PI) / corners;
      const radius = size * (shape === "star" && i % 2 ? 0.5 : 1.25);
      pen.lineTo(x + radius * Math.cos(angle), y + radius * Math.sin(angle));
    }
    pen.closePath();
  }
  pen.fill();
}

export const STARTED = "_started";
export const ENDED = "_ended";

/** Names of situations of which a result has both times. */
export function situationsOf(columns: string[]): string[] {
  return columns.filter((name) => name.endsWith(STARTED)).map((name) => name.slice(0, -STARTED.length)).filter((name) => columns.includes(name + ENDED));
}
