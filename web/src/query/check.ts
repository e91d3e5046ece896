/** Checks a text while it is typed: each statement is parsed and bound by the server, none is run. */
import type { Diagnostic } from "@codemirror/lint";
import { askJson, type Position, Problem, type ProblemDocument } from "../api";
import { offsetOf, statementsOf } from "./statements";

interface Checked {
  problem?: ProblemDocument | null;
}

const CHECKED_MAX = 20;
const known = new Map<string, ProblemDocument | null>();
let offered = true;

async function problemIn(sql: string): Promise<ProblemDocument | null> {
  const before = known.get(sql);
  if (before !== undefined) return before;
  let found: ProblemDocument | null = null;
  try {
    found = (await askJson<Checked>("v1/check", { sql })).problem ?? null;
  } catch (error) {
    if (!(error instanceof Problem)) throw error;
    if (error.document.status === 404) offered = false;
    return null; // what is no answer says nothing of the text
  }
  if (known.size > 200) known.clear();
  known.set(sql, found);
  return found;
}

/** A check remembers; after a change of streams it has to look again. */
export function forgetChecks(): void {
  known.clear();
}

export async function check(text: string): Promise<Diagnostic[]> {
  const found: Diagnostic[] = [];
  for (const piece of statementsOf(text).slice(0, CHECKED_MAX)) {
    if (!offered) break;
    const problem = await problemIn(piece.text);
    if (problem) found.push(diagnosticOf(problem, piece.text, piece.from));
  }
  return found;
}

export function diagnosticOf(problem: ProblemDocument, sql: string, from: number): Diagnostic {
  const [start, end] = rangeOf(sql, problem.position);
  return { from: from + start, to: from + end, severity: "error", message: problem.detail };
}

/** The place of an error; without one the whole statement, without a length the word there. */
export function rangeOf(sql: string, position: Position | undefined): [number, number] {
  if (!position) return [0, sql.length];
  const start = offsetOf(sql, position.line, position.column);
  if (position.length) return [start, Math.min(sql.length, start + position.length)];
  const word = /^(?:"[^"]*"|[\w$]+|\S)/.exec(sql.slice(start))?.[0] ?? "";
  return word ? [start, start + word.length] : [Math.max(0, start - 1), Math.min(sql.length, start)];
}
