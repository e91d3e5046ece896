/** Whole answers as files: the query runs again, in the format wanted, and has to end well. */
import { Problem, request } from "../api";
import type { Run } from "./run";

export const FORMATS = { csv: "CSV", ndjson: "NDJSON", json: "JSON", parquet: "Parquet", arrow: "Arrow" } as const;
export type Format = keyof typeof FORMATS;

export async function exportAs(run: Run, format: Format, read_only: boolean): Promise<number> {
  const { sql, params } = run;
  const response = await request(`v1/query?format=${format}${format === "ndjson" ? "&end_marker=true" : ""}`, {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify({ sql, ...(Object.keys(params).length ? { params } : {}), ...(read_only ? { read_only } : {}) }),
  });
  let blob: Blob;
  try {
    blob = await response.blob(); // an answer that breaks off is an error here
  } catch {
    throw broken();
  }
  if (format === "ndjson") blob = await withoutEnd(blob);
  save(blob, `result.${format}`);
  return blob.size;
}

/** The last line says that the answer is whole; the file does without it. */
async function withoutEnd(blob: Blob): Promise<Blob> {
  const tail = await blob.slice(-400).text();
  const at = tail.lastIndexOf('{"$end"');
  if (at < 0) throw broken();
  return blob.slice(0, blob.size - new TextEncoder().encode(tail.slice(at)).length);
}

function broken(): Problem {
  const detail = "The answer broke off before its end; no file was written.";
  return new Problem({ code: "broken", title: "Broken off", status: 0, detail });
}

export function save(blob: Blob, name: string): void {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
}
