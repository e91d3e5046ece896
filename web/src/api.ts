/**
 * Requests to the server's public API.
 *
 * Every page asks through `request`: it adds the token, and turns an answer that is no success into
 * a `Problem` (RFC 9457).  The token lives in memory and in sessionStorage, never in a cookie, so
 * that no other page can make this browser use it.
 */
import { signal } from "@preact/signals";
import { globbed } from "./ui/glob";

export interface Position {
  line: number;
  column: number;
  length?: number;
}

export interface ProblemDocument {
  code: string;
  title: string;
  status: number;
  detail: string;
  request_id?: string;
  position?: Position;
  errors?: { row?: number; message?: string; where?: string }[];
}

export class Problem extends Error {
  constructor(readonly document: ProblemDocument) {
    super(document.detail || document.title);
  }
}

export type Scope = "read" | "write" | "ingest" | "metrics" | "operate" | "admin";

/** Who the server takes this console for. */
export interface Session {
  console: "read" | "full";
  version: string;
  open: boolean;
  name: string | null;
  /** As the token carries them; `may`: with those that they include. */
  scopes: Scope[];
  may: Scope[];
  streams: string[];
}

const TOKEN = "chronicle.token";
export const token = signal<string>(sessionStorage.getItem(TOKEN) ?? "");
export const session = signal<Session | null>(null);
export const tokenWanted = signal(false);

/** Where the API lies: the console is served at ROOT/console/. */
export const ROOT = new URL("..", document.baseURI).pathname;

export function useToken(secret: string): void {
  token.value = secret;
  if (secret) sessionStorage.setItem(TOKEN, secret);
  else sessionStorage.removeItem(TOKEN);
}

export function headers(more: Record<string, string> = {}): Record<string, string> {
  return token.value ? { ...more, Authorization: `Bearer ${token.value}` } : more;
}

export async function problemOf(response: Response): Promise<Problem> {
  const text = await response.text();
  try {
    const found = JSON.parse(text) as ProblemDocument;
    if (typeof found.detail === "string") return new Problem(found);
  } catch {
    // not a document of this server: a proxy answered
  }
  return new Problem({
    code: "error",
    title: response.statusText || "The request failed",
    status: response.status,
    detail: `The server answered ${response.status}${text ? `: ${text.slice(0, 300)}` : ""}`,
  });
}

export async function request(path: string, options: RequestInit = {}): Promise<Response> {
  let response: Response;
  try {
    response = await fetch(ROOT + path, {
      ...options,
      headers: headers((options.headers ?? {}) as Record<string, string>),
    });
  } catch (error) {
    if (error instanceof DOMException && error.name === "AbortError") throw error;
    throw new Problem({
      code: "connection-failed",
      title: "The server could not be reached",
      status: 0,
      detail: "The server could not be reached. Is it running?",
    });
  }
  if (response.ok) return response;
  if (response.status === 401) tokenWanted.value = true;
  throw await problemOf(response);
}

/** How long to wait, in ms, before a server that is at its limits is asked again. */
const WAITS = [300, 900, 2000];

/**
 * A request that changes nothing.  503 says that the server is at its limits or has lost a worker,
 * and that the same may be asked again: that is done, quietly, a few times.
 */
export async function ask(path: string, options: RequestInit = {}): Promise<Response> {
  for (const wait of WAITS) {
    try {
      return await request(path, options);
    } catch (error) {
      if (!isBusy(error)) throw error;
    }
    await new Promise((resolve) => setTimeout(resolve, wait * (0.5 + Math.random())));
    options.signal?.throwIfAborted();
  }
  return request(path, options);
}

export async function getJson<T>(path: string, signal?: AbortSignal): Promise<T> {
  return (await (await ask(path, signal ? { signal } : {})).json()) as T;
}

function posted(body: unknown, signal?: AbortSignal): RequestInit {
  const headers = { "Content-Type": "application/json" };
  return { method: "POST", headers, body: JSON.stringify(body), ...(signal ? { signal } : {}) };
}

/** A request with a body that changes something: asked once. */
export async function postJson<T>(path: string, body: unknown): Promise<T> {
  return (await (await request(path, posted(body))).json()) as T;
}

/** A question with a body: it changes nothing, see `ask`. */
export async function askJson<T>(path: string, body: unknown, signal?: AbortSignal): Promise<T> {
  return (await (await ask(path, posted(body, signal))).json()) as T;
}

export async function remove(path: string): Promise<void> {
  await request(path, { method: "DELETE" });
}

export async function refreshSession(): Promise<void> {
  try {
    session.value = await getJson<Session>("v1/session");
    tokenWanted.value = false;
  } catch (error) {
    session.value = null;
    if (!(error instanceof Problem && error.document.status === 401)) throw error;
  }
}

/** Whether something may be offered: what the server refuses to this token is not shown. */
export function may(scope: Scope, stream?: string): boolean {
  const now = session.value;
  if (!now || (now.console === "read" && scope !== "read" && scope !== "metrics")) return false;
  return now.may.includes(scope) && (stream === undefined || now.streams.some((glob) => globbed(glob, stream)));
}

/** Whether no stream is out of reach. */
export function everywhere(): boolean {
  return session.value?.streams.includes("*") ?? false;
}

/** Whether an answer says that the server is at its limits for a moment. */
export function isBusy(error: unknown): boolean {
  return error instanceof Problem && error.document.status === 503;
}

export interface Column {
  name: string;
  type: string;
  sql_type: string;
  nullable: boolean;
}

/** A query that has a name. */
export interface ViewInfo {
  name: string;
  sql: string;
  reads: string[];
  schema: Column[];
}

export interface IndexInfo {
  attribute: string;
  [key: string]: unknown;
}

export interface StreamInfo {
  name: string;
  damage?: string;
  time: string;
  schema: Column[];
  count: number;
  version: number;
  /** Numbers where the stream counts. */
  time_range: {
    first: string | number;
    last: string | number;
    first_ticks: number;
    last_ticks: number;
  } | null;
  indexes?: IndexInfo[] | Record<string, unknown>;
  stats?: Record<string, unknown>;
}

export const streams = signal<StreamInfo[] | null>(null);
export const views = signal<ViewInfo[]>([]);
export const streamsProblem = signal<string>("");

/** What stands in FROM: streams, and the views of who may read. */
export async function refreshStreams(): Promise<void> {
  try {
    const found = may("read") ? getJson<{ views: ViewInfo[] }>("v1/views") : { views: [] };
    streams.value = (await getJson<{ streams: StreamInfo[] }>("v1/streams")).streams;
    views.value = (await found).views;
    streamsProblem.value = "";
  } catch (error) {
    streamsProblem.value = messageOf(error);
  }
}

export function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}

/** The rows of a query, for tables of a few hundred rows. */
export async function rowsOf<T>(sql: string, signal?: AbortSignal): Promise<T[]> {
  return (await askJson<{ rows: T[] }>("v1/query", { sql, read_only: true }, signal)).rows;
}

export function address(...parts: string[]): string {
  return ["v1", ...parts.map(encodeURIComponent)].join("/");
}
