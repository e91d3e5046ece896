/** Errors of a run: of the statement itself, or of what a view of its result asked for. */
import { messageOf, Problem, type ProblemDocument } from "../api";
import { rangeOf } from "./check";
import type { Run } from "./run";

/** An error of a statement: where it is in the text of the tab, what it says, the line that it is about. */
export function RunProblem({ run: { sql, line, column }, problem: { title, detail, position } }: { run: Run; problem: ProblemDocument }) {
  const text = position && sql.split("\n")[position.line - 1];
  const [from, to] = rangeOf(sql, position);
  const marked = position && Math.max(1, Math.min(to - from, (text?.length ?? 0) - position.column + 1));
  return (
    <div class="banner bad" role="alert">
      <strong>{position ? `Line ${line + position.line}, column ${position.column + (position.line === 1 ? column : 0)}` : title}</strong>
      <p>{detail}</p>
      {text && marked && <pre tabIndex={0}>{`${text}\n${" ".repeat(position.column - 1)}${"^".repeat(marked)}`}</pre>}
    </div>
  );
}

/** Why a view of a result has nothing to show. */
export function Refused({ run, error }: { run: Run; error: unknown }) {
  if (error instanceof Problem) return <RunProblem run={run} problem={error.document} />;
  return <p class="banner bad" role="alert">{messageOf(error)}</p>;
}
