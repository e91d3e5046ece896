/** Values of answers in JSON, as text of cells: lists and structs as the JSON they are. */
export function cellText(value: unknown): string {
  if (value === null || value === undefined) return "";
  return typeof value === "object" ? JSON.stringify(value) : String(value);
}
