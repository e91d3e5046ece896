/** What is asked again and again while a page is there and shown. */
import { useEffect, useState } from "preact/hooks";
import { isBusy, messageOf, request } from "../api";

export const EVERY_MS = 2000;

export function useRepeated<T>(path: string, everyMs = EVERY_MS): { found: T | null; problem: string; again: () => void } {
  const [found, setFound] = useState<T | null>(null);
  const [problem, setProblem] = useState("");
  const [round, setRound] = useState(0);
  useEffect(() => {
    const stop = new AbortController();
    let failures = 0;
    let timer: ReturnType<typeof setTimeout>;
    const ask = async () => {
      if (!document.hidden) {
        try {
          const answer = await request(path, { signal: stop.signal });
          setFound((await answer.json()) as T);
          setProblem("");
          failures = 0;
        } catch (error) {
          if (stop.signal.aborted) return;
          failures += 1;
          if (failures > 1 || !isBusy(error)) setProblem(messageOf(error)); // busy for a moment: asked again soon
        }
      }
      if (!stop.signal.aborted) timer = setTimeout(() => void ask(), everyMs);
    };
    void ask();
    return () => {
      stop.abort();
      clearTimeout(timer);
    };
  }, [path, round]);
  return { found, problem, again: () => setRound((old) => old + 1) };
}
