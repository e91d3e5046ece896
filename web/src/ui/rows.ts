/** The rows of a query, asked for again when something has changed. */
import { useEffect, useState } from "preact/hooks";
import { messageOf, rowsOf } from "../api";

export function useRows<T>(sql: string, round = 0): { rows: T[] | null; problem: string } {
  const [rows, setRows] = useState<T[] | null>(null);
  const [problem, setProblem] = useState("");
  useEffect(() => {
    const stop = new AbortController();
    rowsOf<T>(sql, stop.signal).then(
      (found) => (setRows(found), setProblem("")),
      (error: unknown) => stop.signal.aborted || setProblem(messageOf(error)),
    );
    return () => stop.abort();
  }, [sql, round]);
  return { rows, problem };
}
