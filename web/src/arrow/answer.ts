/** An answer of the server, held by a worker of its own: what the page knows of it and asks it. */
import { signal } from "@preact/signals";
import workerAddress from "./arrow-worker.ts?worker&url";
import { headers, ROOT } from "../api";
import { localTimes } from "../ui/preferences";
import type { Ask, ColumnFigures, ColumnHead, CopyForm, Ending, Told } from "./protocol";

export interface Statement {
  sql: string;
  params?: Record<string, unknown>;
  limit?: number;
  timeout_ms?: number;
  read_only?: boolean;
}

interface Trusted {
  createPolicy(
    name: string,
    rules: { createScriptURL(url: string): string },
  ): { createScriptURL(url: string): string };
}

/** The page's policy asks for a reason before an address becomes a script: this one file is it. */
function workerScript(): string {
  const trusted = (globalThis as unknown as { trustedTypes?: Trusted }).trustedTypes;
  const url = new URL(workerAddress, document.baseURI).href;
  if (!trusted) return url;
  policy ??= trusted.createPolicy("chronicle-worker", {
    createScriptURL(wanted) {
      if (wanted !== url) throw new TypeError("this is no script of the console");
      return wanted;
    },
  });
  return policy.createScriptURL(url);
}

let policy: { createScriptURL(url: string): string } | undefined;

export class Answer {
  readonly id = crypto.randomUUID();
  readonly columns = signal<ColumnHead[] | null>(null);
  readonly rows = signal(0);
  readonly bytes = signal(0);
  readonly end = signal<Ending | null>(null);
  /** Counts rearrangements, so that what shows rows asks for them again. */
  readonly arrangement = signal({ shown: 0, column: -1, descending: false, filter: "" });
  readonly ended: Promise<Ending>;
  readonly #worker: Worker;
  readonly #waiting = new Map<number, (value: unknown) => void>();
  #asked = 0;

  constructor(path: string, options: { method: string; body?: string }) {
    this.#worker = new Worker(workerScript(), { type: "module" });
    let settle: (end: Ending) => void = () => undefined;
    this.ended = new Promise((resolve) => (settle = resolve));
    this.#worker.addEventListener("message", (event: MessageEvent<Told>) => {
      const told = event.data;
      if (told.kind === "head") this.columns.value = told.columns;
      else if (told.kind === "progress") this.#grown(told.rows, told.bytes);
      else if (told.kind === "done") {
        this.#grown(told.end.rows, told.end.bytes);
        this.end.value = told.end;
        settle(told.end);
      } else {
        this.#waiting.get(told.ask)?.(told.value);
        this.#waiting.delete(told.ask);
      }
    });
    const more = {
      Accept: "application/vnd.apache.arrow.stream",
      "Content-Type": "application/json",
      "X-Request-Id": this.id,
    };
    this.#tell({ kind: "zone", local: localTimes.value });
    this.#tell({ kind: "run", url: ROOT + path, headers: headers(more), ...options });
  }

  static query(statement: Statement): Answer {
    return new Answer("v1/query", { method: "POST", body: JSON.stringify(statement) });
  }

  #grown(rows: number, bytes: number): void {
    this.rows.value = rows;
    this.bytes.value = bytes;
    const now = this.arrangement.value;
    if (now.column < 0 && !now.filter) this.arrangement.value = { ...now, shown: rows };
  }

  #tell(ask: Ask): void {
    this.#worker.postMessage(ask);
  }

  #ask<T>(make: (ask: number) => Ask): Promise<T> {
    this.#asked += 1;
    const ask = this.#asked;
    return new Promise((resolve) => {
      this.#waiting.set(ask, resolve as (value: unknown) => void);
      this.#tell(make(ask));
    });
  }

  page(start: number, count: number): Promise<(string | null)[][]> {
    return this.#ask((ask) => ({ kind: "rows", ask, start, count }));
  }

  async arrange(column: number, descending: boolean, filter: string): Promise<void> {
    const shown = await this.#ask<number>((ask) => ({ kind: "order", ask, column, descending, filter }));
    this.arrangement.value = { shown, column, descending, filter };
  }

  series(columns: number[], most: number): Promise<{ values: Float64Array[]; step: number }> {
    return this.#ask((ask) => ({ kind: "series", ask, columns, most }));
  }

  texts(column: number, most: number): Promise<(string | null)[]> {
    return this.#ask((ask) => ({ kind: "texts", ask, column, most }));
  }

  figures(column: number): Promise<ColumnFigures> {
    return this.#ask((ask) => ({ kind: "figures", ask, column }));
  }

  copy(start: number, count: number, form: CopyForm): Promise<string> {
    return this.#ask((ask) => ({ kind: "copy", ask, start, count, form }));
  }

  showLocalTimes(local: boolean): void {
    this.#tell({ kind: "zone", local });
    this.arrangement.value = { ...this.arrangement.value };
  }

  stop(): void {
    this.#tell({ kind: "stop" });
  }

  close(): void {
    this.stop();
    this.#worker.terminate();
  }
}
