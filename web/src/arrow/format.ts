/**
 * Values of Arrow columns as text, exactly.
 *
 * A number of JavaScript has 53 bits: 64-bit integers, nanoseconds and decimals are read from the
 * raw buffers as BigInt and written digit by digit.  Nothing here rounds.
 */
import { type Data, Vector, Type, TimeUnit, DateUnit, IntervalUnit, util } from "apache-arrow";

export interface Zone {
  /** Minutes east of UTC at an instant, in milliseconds since 1970. */
  offsetAt(ms: number): number;
}

export const UTC: Zone = { offsetAt: () => 0 };
export const LOCAL: Zone = { offsetAt: (ms) => -new Date(ms).getTimezoneOffset() };

const PER_SECOND = [1n, 1_000n, 1_000_000n, 1_000_000_000n];
const DIGITS = [0, 3, 6, 9];

function floorDivide(a: bigint, b: bigint): bigint {
  const q = a / b;
  return a % b < 0n ? q - 1n : q;
}

/** Ticks since 1970 as `2018-08-01 05:00:20.125`; the fraction has 0, 3, 6 or 9 digits. */
export function instant(ticks: bigint, unit: number, zone: Zone = UTC): string {
  const per = PER_SECOND[unit] ?? 1n;
  const seconds = floorDivide(ticks, per);
  const fraction = ticks - seconds * per;
  const ms = Number(seconds) * 1000;
  const minutes = zone.offsetAt(ms);
  const date = new Date(ms + minutes * 60_000);
  const stamp = Number.isNaN(date.getTime())
    ? `${seconds} s`
    : date.toISOString().replace("T", " ").replace(/\.000Z$/, "");
  return stamp + fractionText(fraction, DIGITS[unit] ?? 0);
}

function fractionText(fraction: bigint, digits: number): string {
  if (!digits || fraction === 0n) return "";
  let text = fraction.toString().padStart(digits, "0");
  while (text.length > 3 && text.endsWith("000")) text = text.slice(0, -3);
  return `.${text}`;
}

/** A time of day, from its ticks. */
export function clock(ticks: bigint, unit: number): string {
  const per = PER_SECOND[unit] ?? 1n;
  const all = Number(ticks / per);
  const two = (value: number) => String(value).padStart(2, "0");
  const text = `${two(Math.floor(all / 3600))}:${two(Math.floor(all / 60) % 60)}:${two(all % 60)}`;
  return text + fractionText(ticks % per, DIGITS[unit] ?? 0);
}

/** A duration, from its ticks. */
export function duration(ticks: bigint, unit: number): string {
  const per = PER_SECOND[unit] ?? 1n;
  const sign = ticks < 0n ? "-" : "";
  const size = ticks < 0n ? -ticks : ticks;
  const seconds = size / per;
  const days = seconds / 86_400n;
  const rest = clock(size - days * 86_400n * per, unit);
  return days ? `${sign}${days} days ${rest}` : sign + rest;
}

/** An integer with its decimal point put in. */
export function decimal(value: bigint, scale: number): string {
  if (scale <= 0) return (value * 10n ** BigInt(-scale)).toString();
  const sign = value < 0n ? "-" : "";
  const digits = (value < 0n ? -value : value).toString().padStart(scale + 1, "0");
  return `${sign}${digits.slice(0, -scale)}.${digits.slice(-scale)}`;
}

/** The shortest text that reads back as the same 32-bit float. */
export function float32(value: number): string {
  for (let digits = 6; digits < 9; digits += 1) {
    const shorter = Number(value.toPrecision(digits));
    if (Math.fround(shorter) === value) return float64(shorter);
  }
  return float64(value);
}

export function float64(value: number): string {
  if (Number.isInteger(value) && Math.abs(value) < 1e15) {
    return Object.is(value, -0) ? "-0.0" : `${value}.0`;
  }
  if (value === Infinity) return "inf";
  if (value === -Infinity) return "-inf";
  return Number.isNaN(value) ? "nan" : String(value);
}

function words(data: Data, index: number, count: number): bigint {
  const from = data.values as Uint32Array;
  let value = 0n;
  for (let i = count - 1; i >= 0; i -= 1) {
    value = (value << 32n) | BigInt(from[index * count + i] ?? 0);
  }
  return BigInt.asIntN(32 * count, value);
}

function bytesText(bytes: Uint8Array): string {
  let text = "\\x";
  for (const byte of bytes) text += byte.toString(16).padStart(2, "0");
  return text;
}

interface DecimalType {
  scale: number;
  bitWidth: number;
}

/** The text of one value; null for NULL. */
export function textOf(data: Data, index: number, zone: Zone = UTC): string | null {
  if (index < 0 || index >= data.length) return null;
  if (data.typeId === Type.Null || !data.getValid(index)) return null;
  const values = data.values as unknown as { [at: number]: number | bigint };
  const type = data.type as unknown as { unit: number; timezone?: string | null };
  switch (data.typeId) {
    case Type.Bool: {
      const at = data.offset + index;
      return ((data.values as Uint8Array)[at >> 3] ?? 0) & (1 << (at & 7)) ? "true" : "false";
    }
    case Type.Int:
      return String(values[index]);
    case Type.Float: {
      const value = (data.values as Float64Array)[index] ?? NaN;
      const precision = (data.type as unknown as { precision: number }).precision;
      if (precision === 0) return float64(util.uint16ToFloat64(value));
      return precision === 1 ? float32(value) : float64(value);
    }
    case Type.Timestamp: {
      const ticks = (data.values as unknown as BigInt64Array)[index] ?? 0n;
      return instant(BigInt(ticks), type.unit, zone) + (type.timezone && zone === UTC ? "Z" : "");
    }
    case Type.Date: {
      const unit = type.unit === DateUnit.DAY ? 86_400_000 : 1;
      const date = new Date(Number(values[index]) * unit);
      return Number.isNaN(date.getTime()) ? String(values[index]) : date.toISOString().slice(0, 10);
    }
    case Type.Time:
      return clock(BigInt(values[index] ?? 0), type.unit);
    case Type.Duration:
      return duration(BigInt(values[index] ?? 0), type.unit);
    case Type.Interval:
      return interval(data, index);
    case Type.Decimal: {
      const { scale, bitWidth } = data.type as unknown as DecimalType;
      return decimal(words(data, index, bitWidth / 32), scale);
    }
    case Type.Binary:
    case Type.LargeBinary:
    case Type.FixedSizeBinary:
      return bytesText(vectorOf(data).get(index) as Uint8Array);
    case Type.Dictionary: {
      const key = Number(values[index]);
      return vectorText(data.dictionary as Vector, key, zone);
    }
    case Type.List:
    case Type.FixedSizeList:
    case Type.Struct:
    case Type.Map:
      return nested(data, index, zone);
    default:
      return String(vectorOf(data).get(index));
  }
}

const vectors = new WeakMap<Data, Vector>();

function vectorOf(data: Data): Vector {
  let found = vectors.get(data);
  if (!found) vectors.set(data, (found = new Vector([data])));
  return found;
}

export function vectorText(vector: Vector, index: number, zone: Zone = UTC): string | null {
  let at = index;
  for (const data of vector.data) {
    if (at < data.length) return textOf(data, at, zone);
    at -= data.length;
  }
  return null;
}

function interval(data: Data, index: number): string {
  const unit = (data.type as unknown as { unit: number }).unit;
  const from = data.values as Int32Array;
  if (unit === IntervalUnit.YEAR_MONTH) return `${from[index]} months`;
  if (unit === IntervalUnit.DAY_TIME) {
    return `${from[index * 2]} days ${duration(BigInt(from[index * 2 + 1] ?? 0), TimeUnit.MILLISECOND)}`;
  }
  const nanos = (BigInt(from[index * 4 + 3] ?? 0) << 32n) | BigInt((from[index * 4 + 2] ?? 0) >>> 0);
  const parts = [];
  if (from[index * 4]) parts.push(`${from[index * 4]} months`);
  if (from[index * 4 + 1]) parts.push(`${from[index * 4 + 1]} days`);
  if (nanos || !parts.length) parts.push(duration(nanos, TimeUnit.NANOSECOND));
  return parts.join(" ");
}

const BARE = new Set<number>([Type.Int, Type.Float, Type.Bool, Type.Decimal]);

function inner(data: Data, index: number, zone: Zone): string {
  const text = textOf(data, index, zone);
  if (text === null) return "null";
  const quotedKind = !BARE.has(data.typeId) && !(data.children.length && data.typeId !== Type.Dictionary);
  return quotedKind ? JSON.stringify(text) : text;
}

function nested(data: Data, index: number, zone: Zone): string {
  const child = data.children[0] as Data;
  if (data.typeId === Type.Struct) {
    const names = (data.type.children as { name: string }[]).map((field) => field.name);
    const parts = data.children.map(
      (of, at) => `${JSON.stringify(names[at] ?? "")}: ${inner(of, index, zone)}`,
    );
    return `{${parts.join(", ")}}`;
  }
  let from: number;
  let to: number;
  if (data.typeId === Type.FixedSizeList) {
    const size = (data.type as unknown as { listSize: number }).listSize;
    [from, to] = [index * size, (index + 1) * size];
  } else {
    [from, to] = [Number(data.valueOffsets[index]), Number(data.valueOffsets[index + 1])];
  }
  const parts = [];
  for (let at = from; at < to; at += 1) {
    if (data.typeId === Type.Map) {
      const [key, value] = child.children as [Data, Data];
      parts.push(`${inner(key, at, zone)}: ${inner(value, at, zone)}`);
    } else parts.push(inner(child, at, zone));
  }
  return data.typeId === Type.Map ? `{${parts.join(", ")}}` : `[${parts.join(", ")}]`;
}

/** Whether a column's values stand to the right: numbers do. */
export function isNumeric(typeId: number): boolean {
  return typeId === Type.Int || typeId === Type.Float || typeId === Type.Decimal;
}

/** Whether a column is a time that a chart can have as its x axis. */
export function isTime(typeId: number): boolean {
  return typeId === Type.Timestamp || typeId === Type.Date;
}

/** A value as a number for drawing and sorting; times in milliseconds since 1970. */
export function numberOf(data: Data, index: number): number {
  if (data.typeId === Type.Null || !data.getValid(index)) return NaN;
  const values = data.values as unknown as { [at: number]: number | bigint };
  switch (data.typeId) {
    case Type.Timestamp: {
      const unit = (data.type as unknown as { unit: number }).unit;
      return Number(values[index]) / [0.001, 1, 1e3, 1e6][unit]!;
    }
    case Type.Date: {
      const unit = (data.type as unknown as { unit: number }).unit;
      return Number(values[index]) * (unit === DateUnit.DAY ? 86_400_000 : 1);
    }
    case Type.Decimal: {
      const { scale, bitWidth } = data.type as unknown as DecimalType;
      return Number(decimal(words(data, index, bitWidth / 32), scale));
    }
    case Type.Int:
    case Type.Time:
    case Type.Duration:
      return Number(values[index]);
    case Type.Float: {
      const precision = (data.type as unknown as { precision: number }).precision;
      return precision === 0 ? Number(textOf(data, index)) : Number(values[index]);
    }
    case Type.Bool:
      return textOf(data, index) === "true" ? 1 : 0;
    default:
      return NaN;
  }
}
