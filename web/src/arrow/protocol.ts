/** What the page and the worker that holds an answer say to each other. */
import type { ProblemDocument } from "../api";

export interface ColumnHead {
  name: string;
  type: string;
  numeric: boolean;
  time: boolean;
}

export interface ColumnFigures {
  nulls: number;
  min: string | null;
  max: string | null;
}

export type Ask =
  | { kind: "run"; url: string; method: string; headers: Record<string, string>; body?: string }
  | { kind: "stop" }
  | { kind: "zone"; local: boolean }
  | { kind: "rows"; ask: number; start: number; count: number }
  | { kind: "order"; ask: number; column: number; descending: boolean; filter: string }
  | { kind: "series"; ask: number; columns: number[]; most: number }
  | { kind: "texts"; ask: number; column: number; most: number }
  | { kind: "figures"; ask: number; column: number }
  | { kind: "copy"; ask: number; start: number; count: number; form: CopyForm };

export type CopyForm = "tsv" | "markdown" | "json";

export type Told =
  | { kind: "head"; columns: ColumnHead[] }
  | { kind: "progress"; rows: number; bytes: number }
  | { kind: "done"; end: Ending }
  | { kind: "reply"; ask: number; value: unknown };

export interface Ending {
  rows: number;
  bytes: number;
  seconds: number;
  /** The answer has its end marker: nothing is missing. */
  whole: boolean;
  truncated: boolean;
  timing: string;
  problem: ProblemDocument | null;
  stopped: boolean;
}
