/** Queries to begin with, for a stream that is there. */
import type { Column, StreamInfo } from "../api";
import { instantOf, isInteger } from "../ui/numbers";
import { quoted } from "./names";
import type { View } from "./shelf";

export interface Sample {
  title: string;
  text: string;
  sql: string;
  view: View;
}

/** Mean and greatest value of an attribute. */
export interface Peak {
  avg: number;
  max: number;
}

const NUMBER = /^(float|double|real|decimal|u?(tiny|small|big)?int|uinteger|integer)/i;
const FRACTION = /^(float|double|real|decimal)/i;
const WINDOWS = 60;
/** Lengths of windows that people use, in seconds. */
const LENGTHS: [number, string][] = [
  [1, "'1' SECOND"], [10, "'10' SECOND"], [60, "'1' MINUTE"], [300, "'5' MINUTE"], [1200, "'20' MINUTE"], [3600, "'1' HOUR"],
  [6 * 3600, "'6' HOUR"], [86_400, "'1' DAY"], [7 * 86_400, "'7' DAY"], [30 * 86_400, "'30' DAY"], [365 * 86_400, "'365' DAY"],
];

/** The stream that samples are about: the one with the most events. */
export function sampled(all: StreamInfo[]): StreamInfo | undefined {
  return all.filter((one) => !one.damage && one.count && one.time_range).sort((a, b) => b.count - a.count)[0];
}

/** Its key, and its number: one with a fraction is more likely to be measured. */
export function columnsOf({ schema, time }: StreamInfo): { key: Column | undefined; value: Column | undefined } {
  const others = schema.filter((column) => column.name !== time && !column.name.startsWith("_"));
  const numbers = others.filter((column) => NUMBER.test(column.sql_type));
  return { key: others.find((column) => /^varchar/i.test(column.sql_type)), value: numbers.find((column) => FRACTION.test(column.sql_type)) ?? numbers[0] };
}

function lengthOf({ schema, time, time_range }: StreamInfo): string {
  const span = instantOf(time_range?.last ?? 0) - instantOf(time_range?.first ?? 0);
  const type = schema.find((column) => column.name === time)?.sql_type ?? "";
  if (isInteger(type)) return String(Math.max(1, Math.round(span / WINDOWS)));
  return `INTERVAL ${(LENGTHS.find(([length]) => length * 1000 >= span / WINDOWS) ?? LENGTHS.at(-1))?.[1]}`;
}

/** `peak`: of the column that is measured, where it is known. */
export function samplesOf(stream: StreamInfo, peak: Peak | null): Sample[] {
  const { key, value } = columnsOf(stream);
  const found: Sample[] = [];
  if (value) {
    const by = key ? `${quoted(key.name)}, ` : "";
    found.push({
      title: `${value.name} over time${key ? `, by ${key.name}` : ""}`,
      text: "windows side by side, drawn as a chart",
      view: "Chart",
      sql: `SELECT window_start, ${by}avg(${quoted(value.name)}) AS mean\nFROM TUMBLE(${quoted(stream.name)}, ${quoted(stream.time)}, ${lengthOf(stream)})\nGROUP BY ${by}window_start, window_end\nORDER BY window_start`,
    });
  }
  if (value && peak && peak.max > peak.avg) {
    const least = Number((peak.avg + 0.9 * (peak.max - peak.avg)).toPrecision(3));
    const column = quoted(value.name);
    found.push({
      title: `When ${value.name} was above ${least}${key ? `, by ${key.name}` : ""}`,
      text: "a pattern: each match on a timeline, with its events",
      view: "Matches",
      sql: `SELECT * FROM ${quoted(stream.name)} MATCH_RECOGNIZE (\n  ${key ? `PARTITION BY ${quoted(key.name)} ` : ""}ORDER BY ${quoted(stream.time)}\n  MEASURES FIRST(HIGH.${quoted(stream.time)}) AS began, max(HIGH.${column}) AS peak, BACK.${quoted(stream.time)} AS ended\n  PATTERN (HIGH+ BACK)\n  DEFINE HIGH AS ${column} > ${least}, BACK AS ${column} <= ${least}\n)`,
    });
  }
  found.push({ title: `The latest events of ${stream.name}`, text: "newest first, as a table", view: "Table", sql: `SELECT * FROM ${quoted(stream.name)} ORDER BY ${quoted(stream.time)} DESC LIMIT 100` });
  return found;
}
