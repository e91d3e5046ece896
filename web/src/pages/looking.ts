/** What the server sees in a file, and how a person's corrections are said to it. */

export interface BadRow {
  row?: number;
  message?: string;
}

/** An answer of `POST /v1/ingest/preview`. */
export interface Look {
  format: string;
  compression: string | null;
  time: string | null;
  time_format: string | string[] | null;
  /** Patterns that read the time; of several one has to be chosen. */
  time_formats: string[];
  time_of_day: string | null;
  columns: { name: string; sql_type: string }[];
  rows: Record<string, unknown>[];
  looked_at: number;
  rejected: number;
  errors: BadRow[];
  notes: string[];
}

/** An answer of `POST /v1/ingest`. */
export interface Ingested {
  stream: string;
  created: boolean;
  dry_run: boolean;
  rows: number;
  appended: number;
  late: number;
  count: number | null;
  rejected: number;
  errors: BadRow[];
}

/** A column of the file, and what is to become of it; without a type the inferred one. */
export interface Planned {
  from: string;
  as: string;
  type: string;
  inferred: string;
  keep: boolean;
}

export const TYPES = ["timestamp", "timestamptz", "date", "bigint", "integer", "double", "real", "varchar", "boolean"];
export const TIME_FORMATS = [
  ["auto", "numbers by their size"],
  ["iso", "2026-03-01T08:00:00"],
  ["s", "seconds since 1970"],
  ["ms", "milliseconds since 1970"],
  ["us", "microseconds since 1970"],
  ["ns", "nanoseconds since 1970"],
  ["%d.%m.%Y %H:%M:%S", "a pattern"],
] as const;

export const AMBIGUOUS = [
  ["refuse", "is a bad row"],
  ["earlier", "is the earlier one"],
  ["later", "is the later one"],
] as const;

const TEXT_LOOKED_AT = 1 << 20;
const WHOLE = /\.(gz|zst|bz2|zip|xlsx|parquet|pq|arrow|arrows|ipc|feather)$/i;

/** How a text file is written, by the server's names; what is "" is inferred. */
export const WRITTEN = {
  encoding: "",
  delimiter: "",
  quote: "",
  decimal: "",
  skip: "",
  header: "",
  columns: "",
  null: "",
  sheet: "",
};
export type Written = typeof WRITTEN;
export const ENCODINGS = ["latin-1", "windows-1252", "utf-16", "utf-16-le", "utf-16-be", "iso-8859-15", "windows-1250", "windows-1251", "cp437", "cp850", "shift_jis", "gb18030", "big5"];

/** The first question about a file. */
export function paramsOfFile(file: string, written: Written): URLSearchParams {
  const chosen = Object.entries(written).filter(([, value]) => value !== "");
  return new URLSearchParams([["name", file], ...chosen]);
}

/** What is sent to be looked at: of text the beginning is enough, the rest is read from its end. */
export function lookedAt(file: File): Blob {
  return WHOLE.test(file.name) || file.size <= TEXT_LOOKED_AT ? file : file.slice(0, TEXT_LOOKED_AT);
}

/** The columns of a file; the one with the time of day became part of the time. */
export function columnsOf(first: Look): Planned[] {
  const columns = first.columns.map(({ name, sql_type }) => ({ from: name, as: name, type: "", inferred: sql_type, keep: true }));
  const clock = first.time_of_day;
  if (clock && !columns.some((one) => one.from === clock)) columns.push({ from: clock, as: clock, type: "", inferred: "varchar", keep: true });
  return columns;
}

/** How times are read, as it stands in the form: "" where it has to be chosen, "auto" for ISO 8601. */
export function timeFormatOf(first: Look): string {
  if (first.time_formats.length > 1) return "";
  const formats = [first.time_format ?? []].flat().join(" | ");
  return formats === "iso" ? "auto" : formats || "auto";
}

/** A stream's name for a file's. */
export function nameOf(file: string): string {
  return file.replace(/\.(gz|zst|bz2)$/i, "").replace(/\.\w+$/, "").replace(/\W+/g, "_").replace(/^_+|_+$/g, "").toLowerCase();
}

interface Settings {
  file: string;
  columns: Planned[];
  time: string;
  /** One, or several behind each other: each value has the first that reads it. */
  timeFormat: string;
  /** The time zone of times without an offset; "" for UTC. */
  timeZone: string;
  /** How a time is read that the zone had twice. */
  ambiguous: string;
  /** The column with the time of day, beside one of dates; "" for none. */
  timeOfDay: string;
  written: Written;
  /** The stream that it is appended to; its columns and types are what they are. */
  known: string | null;
}

/** The parameters that preview and ingest share. */
export function paramsOf(chosen: Settings): URLSearchParams {
  const asked = paramsOfFile(chosen.file, chosen.written);
  const { columns, known } = chosen;
  for (const one of columns) if (one.as && one.as !== one.from) asked.append("rename", `${one.from}=${one.as}`);
  if (known) asked.set("stream", known);
  else {
    if (chosen.time) asked.set("time", chosen.time);
    const own = columns.filter((one) => one.as !== chosen.time && one.as !== chosen.timeOfDay);
    for (const one of own) if (one.keep && one.type && one.type !== one.inferred) asked.append("types", `${one.as}=${one.type}`);
    if (columns.some((one) => !one.keep)) for (const one of own) if (one.keep) asked.append("select", one.as);
  }
  const formats = chosen.timeFormat.split("|").map((one) => one.trim()).filter(Boolean);
  if (formats.join() !== "auto") for (const one of formats) asked.append("time_format", one);
  const zone = chosen.timeZone.trim();
  if (zone) asked.set("time_zone", zone);
  if (zone && chosen.ambiguous !== "refuse") asked.set("ambiguous", chosen.ambiguous);
  if (chosen.timeOfDay) asked.set("time_of_day", chosen.timeOfDay);
  return asked;
}
