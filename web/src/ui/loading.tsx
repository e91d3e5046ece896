/** What stands where a list will be: that it loads, its error, or that it is empty. */
import type { ComponentChildren } from "preact";

export function Loading({ what = "Loading…" }: { what?: string }) {
  return <p class="empty" role="status">{what}</p>;
}

/** In place of a list that is not there (null), or has nothing in it. */
export function Instead({ of, problem, none }: { of: unknown[] | null | undefined; problem: string; none: ComponentChildren }) {
  return (
    <>
      {problem && <p class="banner bad" role="alert">{problem}</p>}
      {!of && !problem && <Loading />}
      {of?.length === 0 && <p class="empty">{none}</p>}
    </>
  );
}

/** A table that may be wider or higher than its place: it scrolls, by keys too. */
export function Scroll({ label, tall = false, busy = false, children }: { label: string; tall?: boolean; busy?: boolean; children: ComponentChildren }) {
  return <div class={tall ? "scroll tall" : "scroll"} tabIndex={0} role="group" aria-label={label} aria-busy={busy}>{children}</div>;
}
