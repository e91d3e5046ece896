/** What a job is asked for, from what stands in its form. */
import type { Kind } from "../ui/job";

/** What the form of a job has been told: nothing yet. */
export const NOTHING = { name: "", stream: "", older: "", sql: "", file: "", time: "" };
export type Asked = typeof NOTHING;

/** What is sent; null while something is missing. */
export function specOf(kind: Kind, asked: Asked, create: boolean, all: boolean): object | null {
  const { name, stream, older, sql, file, time } = Object.fromEntries(Object.entries(asked).map(([key, text]) => [key, text.trim()])) as Asked;
  const streams = stream ? { streams: [stream] } : {};
  switch (kind) {
    case "backup":
      return { kind, ...(name ? { name } : {}) };
    case "compact":
      return all || stream ? { kind, ...streams } : null;
    case "move":
      return all || stream ? { kind, ...streams, ...(older ? { older_than: older } : {}) } : null;
    case "export":
      return file && (stream || sql) ? { kind, file, ...(stream ? { stream } : { sql }) } : null;
    case "import":
      return file && stream && (time || !create) ? { kind, file, stream, ...(create ? { create } : {}), ...(time ? { time } : {}) } : null;
    default:
      return { kind };
  }
}
