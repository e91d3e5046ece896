/** Runs of statements: one a tab at most, kept while the page lives. */
import { signal } from "@preact/signals";
import { may, refreshStreams, remove, session } from "../api";
import { Answer } from "../arrow/answer";
import { parametersOf, parameterValue } from "./statements";
import { remember, type Tab } from "./shelf";

export interface Run {
  answer: Answer;
  sql: string;
  /** Where the statement stands in the tab's text, for errors at their place. */
  from: number;
  /** The same as lines before it and columns before it in its first line. */
  line: number;
  column: number;
  params: Record<string, unknown>;
}

export const runs = signal<Record<string, Run>>({});

export function paramsFor(sql: string, typed: Record<string, string>): Record<string, unknown> {
  return Object.fromEntries(parametersOf(sql).map((name) => [name, parameterValue(typed[name] ?? "")]));
}

export async function start(tab: Tab, sql: string, from: number): Promise<void> {
  runs.value[tab.id]?.answer.close();
  const params = paramsFor(sql, tab.params);
  const answer = Answer.query({
    sql,
    limit: tab.limit,
    timeout_ms: Math.round(tab.timeout * 1000),
    ...(Object.keys(params).length ? { params } : {}),
    ...(session.value?.console === "read" ? { read_only: true } : {}),
  });
  const before = tab.sql.slice(0, from).split("\n");
  const [line, column] = [before.length - 1, before.at(-1)?.length ?? 0];
  runs.value = { ...runs.value, [tab.id]: { answer, sql, from, line, column, params } };
  const end = await answer.ended;
  remember({ sql, at: Date.now(), rows: end.rows, seconds: end.seconds, failed: Boolean(end.problem) || !end.whole });
  if (!/^\s*(select|with|explain|show|describe|values)\b/i.test(sql)) void refreshStreams();
}

/** End a query here and at the server. */
export async function cancel(run: Run): Promise<void> {
  try {
    await remove(`v1/queries/${run.answer.id}`);
  } catch {
    // it has ended meanwhile, or never began: what was to be reached is reached
  }
  run.answer.stop();
}

export function forget(id: string): void {
  runs.value[id]?.answer.close();
  const { [id]: _, ...rest } = runs.value;
  runs.value = rest;
}

export function mayRun(): boolean {
  return may("read") || may("write") || may("admin");
}
