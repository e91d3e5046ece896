/** Markdown as a tree of elements: never as HTML text, which the page's policy forbids. */
import { marked, type Token, type Tokens } from "marked";

export interface Element {
  tag: string;
  inside: Block[];
  href?: string;
  text?: string;
  sql?: boolean;
}

export type Block = string | Element;

export function blocksOf(source: string): Block[] {
  return all(marked.lexer(source));
}

function all(tokens: Token[] | undefined): Block[] {
  return (tokens ?? []).flatMap(one);
}

function element(tag: string, inside: Block[]): Element {
  return { tag, inside };
}

function one(token: Token): Block[] {
  switch (token.type) {
    case "heading":
      return [element(`h${(token as Tokens.Heading).depth}`, all(token.tokens))];
    case "paragraph":
      return [element("p", all(token.tokens))];
    case "strong":
    case "em":
    case "del":
    case "blockquote":
      return [element(token.type, all(token.tokens))];
    case "codespan":
      return [element("code", [(token as Tokens.Codespan).text])];
    case "code": {
      const { text, lang } = token as Tokens.Code;
      return [{ tag: "pre", inside: [], text, sql: lang === "sql" }];
    }
    case "list": {
      const { ordered, items } = token as Tokens.List;
      return [element(ordered ? "ol" : "ul", items.map((item) => element("li", all(item.tokens))))];
    }
    case "table": {
      const { header, rows } = token as Tokens.Table;
      const cells = (tag: string, row: Tokens.TableCell[]) => element("tr", row.map((cell) => element(tag, all(cell.tokens))));
      return [element("table", [element("thead", [cells("th", header)]), element("tbody", rows.map((row) => cells("td", row)))])];
    }
    case "link":
      return [{ ...element("a", all(token.tokens)), href: addressOf((token as Tokens.Link).href) }];
    case "image":
      return [(token as Tokens.Image).text];
    case "hr":
      return [element("hr", [])];
    case "br":
      return [element("br", [])];
    case "space":
    case "html":
      return [];
    default:
      return token.type === "text" && "tokens" in token && token.tokens ? all(token.tokens) : ["text" in token ? unescaped(String(token.text)) : ""];
  }
}

function unescaped(text: string): string {
  return text.replace(/&(amp|lt|gt|quot|#39);/g, (_, name: string) => ({ amp: "&", lt: "<", gt: ">", quot: '"', "#39": "'" })[name] ?? "");
}

/** Links between pages stay in the console; anything but https elsewhere leads nowhere. */
function addressOf(href: string): string {
  const page = /^(?:\.\/)?([\w-]+)\.md(?:#.*)?$/.exec(href)?.[1];
  if (page) return `#/help/${page}`;
  return /^https:\/\//.test(href) ? href : "#/help";
}
