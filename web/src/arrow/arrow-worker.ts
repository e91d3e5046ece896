/**
 * Holds the answer of one query, beside the page.
 *
 * The bytes are fetched and decoded here, so that the page never waits for a million rows; it asks
 * for the few that it shows.  An answer counts as whole only when it ends with Arrow's end marker:
 * a status of 200 is no proof (docs/rest.md).
 */
import { type Data, RecordBatchReader, type RecordBatch, type Schema } from "apache-arrow";
import type { Ask, ColumnFigures, CopyForm, Told, Ending } from "./protocol";
import type { ProblemDocument } from "../api";
import { isNumeric, isTime, LOCAL, numberOf, textOf, UTC, type Zone } from "./format";

let batches: RecordBatch[] = [];
let starts: number[] = [];
let total = 0;
let order: Uint32Array | null = null;
let schema: Schema | null = null;
let zone: Zone = UTC;
let stopping: AbortController | null = null;

const tell = (told: Told) => postMessage(told);
const reply = (ask: number, value: unknown) => tell({ kind: "reply", ask, value });

addEventListener("message", (event: MessageEvent<Ask>) => {
  const ask = event.data;
  switch (ask.kind) {
    case "run":
      void run(ask);
      break;
    case "stop":
      stopping?.abort();
      break;
    case "zone":
      zone = ask.local ? LOCAL : UTC;
      break;
    case "rows":
      reply(ask.ask, rows(ask.start, ask.count));
      break;
    case "order":
      order = arranged(ask.column, ask.descending, ask.filter);
      reply(ask.ask, shown());
      break;
    case "series":
      reply(ask.ask, series(ask.columns, ask.most));
      break;
    case "texts":
      reply(ask.ask, texts(ask.column, ask.most));
      break;
    case "figures":
      reply(ask.ask, figures(ask.column));
      break;
    case "copy":
      reply(ask.ask, copied(ask.start, ask.count, ask.form));
      break;
  }
});

async function run(ask: Extract<Ask, { kind: "run" }>): Promise<void> {
  const began = performance.now();
  stopping = new AbortController();
  let bytes = 0;
  let tail: Uint8Array = new Uint8Array(0);
  let truncated = false;
  let timing = "";
  let told = 0;
  const end = (problem: ProblemDocument | null, stopped = false, whole = false) => {
    const seconds = (performance.now() - began) / 1000;
    const ending: Ending = { rows: total, bytes, seconds, whole, truncated, timing, problem, stopped };
    tell({ kind: "done", end: ending });
  };
  try {
    const { url, kind: _, ...options } = ask;
    const response = await fetch(url, { ...options, signal: stopping.signal });
    timing = response.headers.get("Server-Timing") ?? "";
    truncated = response.headers.get("X-Truncated") === "true";
    if (!response.ok) return end(await problemOf(response));
    const counted = (response.body as ReadableStream<Uint8Array>).pipeThrough(
      new TransformStream<Uint8Array, Uint8Array>({
        transform(piece, controller) {
          bytes += piece.byteLength;
          tail = piece.byteLength >= 8 ? piece.slice(-8) : joined(tail, piece).slice(-8);
          controller.enqueue(piece);
        },
      }),
    );
    const reader = await RecordBatchReader.from(counted);
    await reader.open();
    schema = reader.schema;
    tell({ kind: "head", columns: schema.fields.map(headOf) });
    for await (const batch of reader) {
      if (batch.metadata?.get("chronicle.truncated") === "true") truncated = true;
      if (batch.numRows) {
        batches.push(batch);
        starts.push(total);
        total += batch.numRows;
      }
      if (performance.now() - told > 100) {
        told = performance.now();
        tell({ kind: "progress", rows: total, bytes });
      }
    }
    end(null, false, endsWell(tail));
  } catch (error) {
    const stopped = stopping.signal.aborted;
    const detail = stopped
      ? "Cancelled."
      : schema
        ? "The connection ended before the last row. Run the query again."
        : "The server could not be reached, or the connection ended.";
    end({ code: "broken", title: "The answer is incomplete", status: 0, detail }, stopped);
  }
}

function headOf(field: Schema["fields"][number]) {
  const { typeId } = field.type;
  return {
    name: field.name,
    type: sqlType(field.type),
    numeric: isNumeric(typeId),
    time: isTime(typeId),
  };
}

const NAMES: [RegExp, string][] = [
  [/^(Large)?Utf8(View)?$/, "varchar"],
  [/^(Large)?Binary(View)?$/, "blob"],
  [/^Float64$/, "double"],
  [/^Float32$/, "real"],
  [/^Int64$/, "bigint"],
  [/^Int32$/, "integer"],
  [/^Int16$/, "smallint"],
  [/^Int8$/, "tinyint"],
  [/^Uint64$/, "ubigint"],
  [/^Uint32$/, "uinteger"],
  [/^Uint16$/, "usmallint"],
  [/^Uint8$/, "utinyint"],
  [/^Bool$/, "boolean"],
  [/^Timestamp<\w+, \w.*>$/, "timestamptz"],
  [/^Timestamp/, "timestamp"],
  [/^Date/, "date"],
  [/^Time/, "time"],
  [/^Interval/, "interval"],
];

/** The name that a type has in SQL, as well as Arrow's name tells it. */
function sqlType(type: Schema["fields"][number]["type"]): string {
  const name = String(type);
  const found = NAMES.find(([pattern]) => pattern.test(name));
  if (found) return found[1];
  const decimal = /^Decimal\[(\d+)e\+?(-?\d+)\]/.exec(name);
  return decimal ? `decimal(${decimal[1]}, ${decimal[2]})` : name.toLowerCase();
}

async function problemOf(response: Response): Promise<ProblemDocument> {
  const text = await response.text();
  try {
    return JSON.parse(text) as ProblemDocument;
  } catch {
    const detail = `The server answered ${response.status}: ${text.slice(0, 300)}`;
    return { code: "error", title: "The request failed", status: response.status, detail };
  }
}

function joined(a: Uint8Array, b: Uint8Array): Uint8Array {
  const both = new Uint8Array(a.length + b.length);
  both.set(a);
  both.set(b, a.length);
  return both;
}

/** Arrow's end-of-stream marker: a continuation mark and a length of 0. */
function endsWell(tail: Uint8Array): boolean {
  return tail.length === 8 && tail.every((byte, at) => byte === (at < 4 ? 255 : 0));
}

function shown(): number {
  return order ? order.length : total;
}

/** The batch of a row, found by halving. */
function place(row: number): [RecordBatch, number] {
  let low = 0;
  let high = starts.length - 1;
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if ((starts[middle] as number) <= row) low = middle;
    else high = middle - 1;
  }
  return [batches[low] as RecordBatch, row - (starts[low] as number)];
}

function cellsOf(row: number): (string | null)[] {
  const [batch, at] = place(row);
  return batch.data.children.map((data) => textOf(data, at, zone));
}

function rows(start: number, count: number): (string | null)[][] {
  const until = Math.min(shown(), start + count);
  const found = [];
  for (let at = start; at < until; at += 1) found.push(cellsOf(order ? (order[at] as number) : at));
  return found;
}

function dataOf(column: number): Data[] {
  return batches.map((batch) => batch.data.children[column] as Data);
}

function numbers(column: number): Float64Array {
  const found = new Float64Array(total);
  let at = 0;
  for (const data of dataOf(column)) {
    for (let i = 0; i < data.length; i += 1) found[at++] = numberOf(data, i);
  }
  return found;
}

function allTexts(column: number): (string | null)[] {
  const found: (string | null)[] = [];
  for (const data of dataOf(column)) {
    for (let i = 0; i < data.length; i += 1) found.push(textOf(data, i, zone));
  }
  return found;
}

/** Exact keys of a column for sorting: 64-bit values are compared as they are stored. */
function comparison(column: number): (a: number, b: number) => number {
  const field = schema?.fields[column];
  const stored = dataOf(column);
  const wide = stored.length > 0 && stored.every((data) => data.values instanceof BigInt64Array);
  if (wide) {
    const keys = new BigInt64Array(total);
    const valid = new Uint8Array(total);
    let at = 0;
    for (const data of stored) {
      for (let i = 0; i < data.length; i += 1, at += 1) {
        valid[at] = data.getValid(i) ? 1 : 0;
        keys[at] = (data.values as unknown as BigInt64Array)[i] as bigint;
      }
    }
    return (a, b) => {
      if (!valid[a] || !valid[b]) return (valid[b] ?? 0) - (valid[a] ?? 0);
      return (keys[a] as bigint) < (keys[b] as bigint) ? -1 : keys[a] === keys[b] ? 0 : 1;
    };
  }
  if (field && (isNumeric(field.type.typeId) || isTime(field.type.typeId))) {
    const keys = numbers(column);
    return (a, b) => compare(keys[a] as number, keys[b] as number);
  }
  const keys = allTexts(column);
  return (a, b) => {
    const [x, y] = [keys[a], keys[b]];
    if (x === null || y === null) return x === y ? 0 : x === null ? 1 : -1;
    return (x as string) < (y as string) ? -1 : x === y ? 0 : 1;
  };
}

function compare(x: number, y: number): number {
  if (Number.isNaN(x) || Number.isNaN(y)) return Number(Number.isNaN(x)) - Number(Number.isNaN(y));
  return x - y;
}

/** Row numbers in the order wanted; null when that is the order of the answer. */
function arranged(column: number, descending: boolean, filter: string): Uint32Array | null {
  if (column < 0 && !filter) return null;
  let kept = new Uint32Array(total);
  let count = 0;
  const wanted = filter.toLowerCase();
  for (let row = 0; row < total; row += 1) {
    if (wanted && !cellsOf(row).some((text) => text?.toLowerCase().includes(wanted))) continue;
    kept[count++] = row;
  }
  kept = kept.slice(0, count);
  if (column >= 0) {
    const by = comparison(column);
    kept.sort(descending ? (a, b) => by(b, a) || a - b : (a, b) => by(a, b) || a - b);
  }
  return kept;
}

/** Columns as numbers; of more rows than wanted, every so-manyth is left out by largest change. */
function series(columns: number[], most: number): { values: Float64Array[]; step: number } {
  const step = Math.max(1, Math.ceil(total / most));
  const values = columns.map((column) => {
    const all = numbers(column);
    return step === 1 ? all : all.filter((_, at) => at % step === 0);
  });
  return { values, step };
}

function texts(column: number, most: number): (string | null)[] {
  const found: (string | null)[] = [];
  for (let row = 0; row < Math.min(total, most); row += 1) {
    const [batch, at] = place(row);
    found.push(textOf(batch.data.children[column] as Data, at, zone));
  }
  return found;
}

function figures(column: number): ColumnFigures {
  let nulls = 0;
  for (const data of dataOf(column)) nulls += data.nullCount;
  if (total === nulls) return { nulls, min: null, max: null };
  const by = comparison(column);
  let least = -1;
  let most = -1;
  for (let row = 0; row < total; row += 1) {
    const [batch, at] = place(row);
    if (!(batch.data.children[column] as Data).getValid(at)) continue;
    if (least < 0 || by(row, least) < 0) least = row;
    if (most < 0 || by(row, most) > 0) most = row;
  }
  const text = (row: number) => (row < 0 ? null : (cellsOf(row)[column] ?? null));
  return { nulls, min: text(least), max: text(most) };
}

function copied(start: number, count: number, form: CopyForm): string {
  const names = schema?.fields.map((field) => field.name) ?? [];
  const found = rows(start, count);
  if (form === "json") {
    const objects = found.map((row) => Object.fromEntries(names.map((name, i) => [name, row[i]])));
    return JSON.stringify(objects, null, 1);
  }
  if (form === "markdown") {
    const line = (cells: (string | null)[]) =>
      `| ${cells.map((cell) => (cell ?? "").replaceAll("|", "\\|").replaceAll("\n", " ")).join(" | ")} |`;
    return [line(names), line(names.map(() => "---")), ...found.map(line)].join("\n");
  }
  const line = (cells: (string | null)[]) =>
    cells.map((cell) => (cell ?? "").replace(/[\t\r\n]/g, " ")).join("\t");
  return [line(names), ...found.map(line)].join("\n");
}
