/** Reads just enough of SQL's lexical rules to find statements and parameters in a text. */

export interface Piece {
  from: number;
  to: number;
  text: string;
}

const SKIPPED =
  /--[^\n]*|\/\*[\s\S]*?(?:\*\/|$)|'(?:[^']|'')*'?|"(?:[^"]|"")*"?|\$\$[\s\S]*?(?:\$\$|$)|;|\$([A-Za-z_]\w*)|[^'"$;\/-]+|[\s\S]/g;

/** The statements of a text, without what stands around them. */
export function statementsOf(text: string): Piece[] {
  const found: Piece[] = [];
  let from = 0;
  const close = (to: number) => {
    const raw = text.slice(from, to);
    const start = from + (raw.length - raw.trimStart().length);
    const body = raw.trim();
    if (body && bare(body)) found.push({ from: start, to: start + body.length, text: body });
    from = to + 1;
  };
  for (const match of text.matchAll(SKIPPED)) if (match[0] === ";") close(match.index);
  close(text.length);
  return found;
}

/** Whether more than comments is there. */
function bare(text: string): boolean {
  return text.replace(/--[^\n]*|\/\*[\s\S]*?(?:\*\/|$)/g, "").trim() !== "";
}

/** The statement at a place of the text; the one before it when it stands between two. */
export function statementAt(text: string, at: number): Piece | null {
  const all = statementsOf(text);
  return all.find((piece) => at <= piece.to + 1) ?? all.at(-1) ?? null;
}

/** Names of `$parameters`, in order. */
export function parametersOf(text: string): string[] {
  const found = new Set<string>();
  for (const match of text.matchAll(SKIPPED)) if (match[1]) found.add(match[1]);
  return [...found];
}

/** What a person typed for a parameter: a number where it is written like one, else text. */
export function parameterValue(typed: string): string | number | boolean | null {
  const text = typed.trim();
  if (/^null$/i.test(text)) return null;
  if (/^(true|false)$/i.test(text)) return text.toLowerCase() === "true";
  if (/^[-+]?(\d+\.?\d*|\.\d+)(e[-+]?\d+)?$/i.test(text)) {
    const value = Number(text);
    if (!/^[-+]?\d+$/.test(text) || Number.isSafeInteger(value)) return value;
  }
  return /^'.*'$/s.test(text) ? text.slice(1, -1).replaceAll("''", "'") : typed;
}

/** The offset of a line and column (both from 1) of a statement. */
export function offsetOf(text: string, line: number, column: number): number {
  let at = 0;
  for (let passed = 1; passed < line; passed += 1) {
    const next = text.indexOf("\n", at);
    if (next < 0) return text.length;
    at = next + 1;
  }
  const end = text.indexOf("\n", at);
  return Math.min(at + Math.max(0, column - 1), end < 0 ? text.length : end);
}
