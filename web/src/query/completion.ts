/** Completion: streams, views, columns, functions, and the variables of the pattern at hand. */
import type { Completion, CompletionContext, CompletionResult, CompletionSource } from "@codemirror/autocomplete";
import { snippetCompletion } from "@codemirror/autocomplete";
import { type Column, streams, views } from "../api";
import { quoted } from "./names";
import type { Dialect } from "./dialect";
import { statementAt } from "./statements";

const SNIPPETS = [
  snippetCompletion(
    "MATCH_RECOGNIZE (\n  PARTITION BY ${key}\n  ORDER BY ${time}\n  MEASURES FIRST(A.${time}) AS began, LAST(B.${time}) AS ended\n  ONE ROW PER MATCH\n  AFTER MATCH SKIP PAST LAST ROW\n  PATTERN (A B+)\n  WITHIN INTERVAL '${10 minutes}'\n  DEFINE\n    A AS ${condition},\n    B AS ${condition}\n)",
    { label: "MATCH_RECOGNIZE", type: "keyword", detail: "row pattern", boost: 2 },
  ),
  snippetCompletion("TUMBLE(${stream}, ${time}, INTERVAL '${1 hour}')", { label: "TUMBLE", type: "function", detail: "windows side by side" }),
  snippetCompletion("HOP(${stream}, ${time}, INTERVAL '${10 minutes}', INTERVAL '${1 hour}')", { label: "HOP", type: "function", detail: "overlapping windows" }),
  snippetCompletion("SESSION(${stream}, ${time}, INTERVAL '${30 minutes}')", { label: "SESSION", type: "function", detail: "windows by pauses" }),
];

/** A stream or a view. */
interface Relation {
  name: string;
  schema: Column[];
  detail: string;
}

function relations(): Relation[] {
  const sound = (streams.value ?? []).filter((stream) => !stream.damage);
  return [
    ...sound.map(({ name, schema, count }) => ({ name, schema, detail: `${count.toLocaleString("en-US")} events` })),
    ...views.value.map(({ name, schema }) => ({ name, schema, detail: "view" })),
  ];
}

function columnsOf({ name, schema }: Relation): Completion[] {
  return schema.map((column) => ({
    label: quoted(column.name),
    type: "property",
    detail: `${column.sql_type} · ${name}`,
    boost: 1,
  }));
}

/** The clause of a pattern around a place, and its variables. */
export function variablesOf(statement: string): string[] {
  const found = /\bPATTERN\s*\(/i.exec(statement);
  if (!found) return [];
  let depth = 1;
  let at = found.index + found[0].length;
  const from = at;
  for (; at < statement.length && depth; at += 1) {
    if (statement[at] === "(") depth += 1;
    else if (statement[at] === ")") depth -= 1;
  }
  const names = statement.slice(from, at - 1).replace(/\bPERMUTE\b/gi, " ").match(/[A-Za-z_]\w*/g) ?? [];
  return [...new Set(names)];
}

export function completionOf(dialect: () => Dialect): CompletionSource {
  return (context: CompletionContext): CompletionResult | null => {
    const text = context.state.doc.toString();
    const before = context.matchBefore(/(?:"[^"]*"|\w+)\.\w*$|\w+$|"[^"]*$/);
    if (!before && !context.explicit) return null;
    const statement = statementAt(text, context.pos)?.text ?? text;
    const known = relations();
    const used = known.filter(({ name }) => new RegExp(`(?:^|[^\\w])"?${escaped(name)}"?(?:[^\\w]|$)`, "i").test(statement));
    const variables = variablesOf(statement);
    const typed = before?.text ?? "";
    const dot = typed.indexOf(".");
    if (dot >= 0) {
      const owner = typed.slice(0, dot).replaceAll('"', "");
      const own = known.find(({ name }) => name === owner);
      const alias = new RegExp(`([\\w"]+)\\s+(?:AS\\s+)?${escaped(owner)}\\b`, "i").exec(statement)?.[1]?.replaceAll('"', "");
      const named = known.find(({ name }) => name === alias);
      const options = own ? columnsOf(own) : named ? columnsOf(named) : used.flatMap(columnsOf);
      return { from: (before?.from ?? context.pos) + dot + 1, options, validFor: /^\w*$/ };
    }
    const options: Completion[] = [
      ...variables.map((name): Completion => ({ label: name, type: "variable", detail: "of the pattern", boost: 3 })),
      ...used.flatMap(columnsOf),
      ...known.map(({ name, detail }): Completion => ({ label: quoted(name), type: "class", detail })),
      ...SNIPPETS,
      ...dialect().functions.map(
        (item): Completion => ({ label: item.name, type: "function", detail: item.signature ?? item.kind ?? "" }),
      ),
      ...dialect().types.map((name): Completion => ({ label: name, type: "type" })),
      ...dialect().keywords.map((name): Completion => ({ label: name.toUpperCase(), type: "keyword", boost: -1 })),
    ];
    return { from: before?.from ?? context.pos, options, validFor: /^[\w"]*$/ };
  };
}

function escaped(text: string): string {
  return text.replace(/[.*+?^${}()|[\]\\]/g, "\\$&");
}
