/** What outlives a reload: the tabs and the history of statements, in IndexedDB. */
import { effect, signal } from "@preact/signals";

export type View = "Table" | "Chart" | "Matches" | "Plan";

export interface Tab {
  id: string;
  title: string;
  sql: string;
  params: Record<string, string>;
  limit: number;
  timeout: number;
  view: View;
}

export interface Past {
  sql: string;
  at: number;
  rows: number;
  seconds: number;
  failed: boolean;
}

const PAST_MAX = 200;
export const LIMIT = 100_000;
export const TIMEOUT = 60;

export const tabs = signal<Tab[]>([]);
export const active = signal("");
export const past = signal<Past[]>([]);

let base: IDBDatabase | null = null;

function opened(): Promise<IDBDatabase | null> {
  return new Promise((resolve) => {
    const asked = indexedDB.open("chronicle", 1);
    asked.onupgradeneeded = () => asked.result.createObjectStore("kept");
    asked.onsuccess = () => resolve(asked.result);
    asked.onerror = () => resolve(null); // a private window may keep nothing
  });
}

function read<T>(key: string): Promise<T | undefined> {
  return new Promise((resolve) => {
    if (!base) return resolve(undefined);
    const asked = base.transaction("kept").objectStore("kept").get(key);
    asked.onsuccess = () => resolve(asked.result as T | undefined);
    asked.onerror = () => resolve(undefined);
  });
}

function write(key: string, value: unknown): void {
  base?.transaction("kept", "readwrite").objectStore("kept").put(value, key);
}

export function newTab(sql = "", title = ""): Tab {
  const number = 1 + Math.max(0, ...tabs.value.map((tab) => Number(/^Query (\d+)$/.exec(tab.title)?.[1] ?? 0)));
  const tab: Tab = {
    id: crypto.randomUUID(),
    title: title || `Query ${number}`,
    sql,
    params: {},
    limit: LIMIT,
    timeout: TIMEOUT,
    view: "Table",
  };
  tabs.value = [...tabs.value, tab];
  active.value = tab.id;
  return tab;
}

export function changeTab(id: string, change: Partial<Tab>): void {
  tabs.value = tabs.value.map((tab) => (tab.id === id ? { ...tab, ...change } : tab));
}

export function closeTab(id: string): void {
  const at = tabs.value.findIndex((tab) => tab.id === id);
  tabs.value = tabs.value.filter((tab) => tab.id !== id);
  if (!tabs.value.length) newTab();
  else if (active.value === id) active.value = (tabs.value[Math.max(0, at - 1)] as Tab).id;
}

export function remember(item: Past): void {
  past.value = [item, ...past.value.filter((old) => old.sql !== item.sql)].slice(0, PAST_MAX);
}

let ready: Promise<void> | null = null;

/** Bring back what was kept; once. */
export function restore(): Promise<void> {
  ready ??= (async () => {
    base = await opened();
    const [kept, keptPast, keptActive] = [await read<Tab[]>("tabs"), await read<Past[]>("past"), await read<string>("active")];
    tabs.value = [...(kept ?? []), ...tabs.value]; // another page may have opened one before
    past.value = keptPast ?? [];
    active.value ||= keptActive ?? "";
    if (!tabs.value.length) newTab();
    if (!tabs.value.some((tab) => tab.id === active.value)) active.value = (tabs.value[0] as Tab).id;
    effect(() => write("tabs", tabs.value));
    effect(() => write("past", past.value));
    effect(() => write("active", active.value));
  })();
  return ready;
}
