/** Numbers and times for people. */
import { localTimes } from "./preferences";

const WHOLE = new Intl.NumberFormat("en-US");

export function count(value: number): string {
  return WHOLE.format(value);
}

export function short(value: number): string {
  const steps: [number, string][] = [
    [1e9, "G"],
    [1e6, "M"],
    [1e3, "k"],
  ];
  for (const [size, unit] of steps) {
    if (Math.abs(value) >= size) return `${Number((value / size).toPrecision(3))}${unit}`;
  }
  return String(Number(value.toPrecision(3)));
}

export function bytes(value: number): string {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let at = 0;
  let left = value;
  while (left >= 1024 && at < units.length - 1) {
    left /= 1024;
    at += 1;
  }
  return `${at === 0 ? left : left.toFixed(1)} ${units[at]}`;
}

export function seconds(value: number): string {
  if (!value) return "0 ms";
  if (value < 0.0995) return `${(value * 1000).toFixed(1)} ms`;
  if (value < 0.9995) return `${(value * 1000).toFixed(0)} ms`;
  if (value < 120) return `${value.toFixed(2)} s`;
  const [size, unit, less, part] = value < 7200 ? [60, "min", 1, "s"] : value < 2 * 86_400 ? [3600, "h", 60, "min"] : [86_400, "d", 3600, "h"];
  const whole = Math.round(value / less) * less;
  return `${Math.floor(whole / size)} ${unit} ${Math.round((whole % size) / less)} ${part}`;
}

export function share(part: number, whole: number): string {
  if (!whole) return "0 %";
  const percent = (100 * part) / whole;
  return percent > 0 && percent < 0.1 ? "< 0.1 %" : `${percent.toFixed(percent < 10 ? 1 : 0)} %`;
}

/** An instant in milliseconds since 1970, in UTC or the browser's zone; never guessed. */
export function moment(ms: number, span = 0): string {
  const minutes = localTimes.value ? -new Date(ms).getTimezoneOffset() : 0;
  const date = new Date(ms + minutes * 60_000);
  if (Number.isNaN(date.getTime())) return "";
  const text = date.toISOString().replace("T", " ").replace("Z", "");
  if (!span) return text.replace(/\.000$/, "");
  if (span > 3 * 86_400_000 * 30) return text.slice(0, 10);
  if (span > 2 * 86_400_000) return text.slice(0, 16);
  return span > 10_000 ? text.slice(0, 19) : text;
}

/** A place on an axis: an instant, or an integer where a stream counts instead of having times. */
export function spot(value: number, integers: boolean, span = 0): string {
  return integers ? count(Math.round(value)) : moment(value, span);
}

/** The length of a stretch of such an axis. */
export function stretch(from: number, to: number, integers: boolean): string {
  return integers ? count(Math.round(to - from)) : seconds((to - from) / 1000);
}

/** Whether a column's type counts, as the time of a stream may. */
export function isInteger(sqlType: string): boolean {
  return /int(eger)?$/i.test(sqlType);
}

/** The server's text of a time (ISO 8601, UTC where nothing is said) in milliseconds. */
export function instantOf(time: string | number): number {
  const text = String(time);
  if (/^-?\d+$/.test(text)) return Number(text); // a stream that counts, instead of having times
  const iso = text.trim().replace(" ", "T");
  return Date.parse(/[zZ]$|[+-]\d\d:?\d\d$/.test(iso) ? iso : `${iso}Z`);
}
