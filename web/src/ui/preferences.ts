/** What a person has chosen, kept in this browser. */
import { effect, signal } from "@preact/signals";

export type Theme = "auto" | "light" | "dark";

function kept<T extends string>(name: string, first: T, known: readonly T[]) {
  const stored = localStorage.getItem(`chronicle.${name}`) as T | null;
  const value = signal<T>(stored && known.includes(stored) ? stored : first);
  effect(() => localStorage.setItem(`chronicle.${name}`, value.value));
  return value;
}

export const theme = kept<Theme>("theme", "auto", ["auto", "light", "dark"]);
const zoneChoice = kept<"utc" | "local">("zone", "utc", ["utc", "local"]);
export const localTimes = signal(zoneChoice.value === "local");

export function showLocalTimes(local: boolean): void {
  zoneChoice.value = local ? "local" : "utc";
  localTimes.value = local;
}

const system = matchMedia("(prefers-color-scheme: dark)");
const systemDark = signal(system.matches);
system.addEventListener("change", () => (systemDark.value = system.matches));

export const dark = signal(false);
effect(() => {
  dark.value = theme.value === "dark" || (theme.value === "auto" && systemDark.value);
  document.documentElement.dataset.theme = dark.value ? "dark" : "light";
});

/** A colour of the style sheet, for what is drawn on a canvas; `dark` is read so that it follows. */
export function colour(name: string): string {
  void dark.value;
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
}

/** Okabe and Ito's palette: told apart with every kind of colour vision. */
export const SERIES = ["series-1", "series-2", "series-3", "series-4", "series-5", "series-6", "series-7"];
