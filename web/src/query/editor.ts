/**
 * The SQL editor: CodeMirror 6 inside a shadow root.
 *
 * The page's policy forbids style elements.  Inside a shadow root CodeMirror adopts style sheets
 * made by script instead, which the policy allows.
 */
import { autocompletion, closeBrackets, closeCompletion, closeBracketsKeymap, completionKeymap } from "@codemirror/autocomplete";
import { defaultKeymap, history, historyKeymap, indentWithTab } from "@codemirror/commands";
import { SQLDialect, sql } from "@codemirror/lang-sql";
import { bracketMatching, HighlightStyle, indentOnInput, syntaxHighlighting } from "@codemirror/language";
import { type Diagnostic, linter, lintKeymap, setDiagnostics } from "@codemirror/lint";
import { highlightSelectionMatches, search, searchKeymap } from "@codemirror/search";
import { Compartment, EditorState, Prec } from "@codemirror/state";
import { drawSelection, EditorView, highlightActiveLine, keymap, lineNumbers, placeholder } from "@codemirror/view";
import { tags } from "@lezer/highlight";
import { completionOf } from "./completion";
import { dialect, FALLBACK } from "./dialect";

const style = HighlightStyle.define([
  { tag: [tags.keyword, tags.operatorKeyword, tags.modifier], color: "var(--code-keyword)", fontWeight: "600" },
  { tag: [tags.string, tags.special(tags.string)], color: "var(--code-string)" },
  { tag: [tags.number, tags.bool, tags.null], color: "var(--code-number)" },
  { tag: [tags.lineComment, tags.blockComment], color: "var(--code-comment)", fontStyle: "italic" },
  { tag: [tags.typeName, tags.standard(tags.name)], color: "var(--code-type)" },
]);

const look = EditorView.theme({
  "&": { height: "100%", fontSize: "13px", color: "var(--text)", backgroundColor: "transparent" },
  "&.cm-focused": { outline: "none" },
  ".cm-scroller": { fontFamily: "var(--mono)", lineHeight: "1.55", overflow: "auto" },
  ".cm-gutters": { backgroundColor: "var(--surface)", color: "var(--quiet)", border: "none" },
  ".cm-activeLine": { backgroundColor: "var(--hover)" },
  ".cm-content": { caretColor: "var(--text)", padding: "8px 0" },
  ".cm-cursor": { borderLeftColor: "var(--text)" },
  ".cm-selectionBackground, &.cm-focused .cm-selectionBackground": { backgroundColor: "var(--selection) !important" },
  ".cm-matchingBracket": { backgroundColor: "var(--selection)", outline: "1px solid var(--line)" },
  ".cm-placeholder": { color: "var(--quiet)" },
  ".cm-tooltip": { backgroundColor: "var(--raised)", color: "var(--text)", border: "1px solid var(--line)", borderRadius: "6px", boxShadow: "var(--shadow)" },
  ".cm-tooltip-autocomplete > ul": { fontFamily: "var(--mono)", maxHeight: "16em" },
  ".cm-tooltip-autocomplete > ul > li[aria-selected]": { backgroundColor: "var(--accent)", color: "var(--on-accent)" },
  ".cm-tooltip-autocomplete > ul > li[aria-selected] .cm-completionDetail": { color: "var(--on-accent)" },
  ".cm-completionDetail": { color: "var(--quiet)", fontStyle: "normal" },
  ".cm-panels": { backgroundColor: "var(--raised)", color: "var(--text)", borderColor: "var(--line)" },
  ".cm-lintRange-error": { backgroundImage: "none", textDecoration: "underline wavy var(--bad) 1.5px", textUnderlineOffset: "3px" },
  ".cm-diagnostic": { whiteSpace: "pre-wrap", maxWidth: "60ch", padding: "6px 10px" },
  ".cm-diagnostic-error": { borderLeft: "3px solid var(--bad)" },
});

/** The width of a phone, in pixels: lines are wrapped. */
const NARROW = 760;

export interface EditorOptions {
  text: string;
  changed(text: string): void;
  run(): void;
  check(text: string): Promise<Diagnostic[]>;
}

export interface Editor {
  readonly view: EditorView;
  /** What runs: the selection, else the statement at the cursor is found by the caller. */
  selection(): { from: number; to: number; text: string };
  /** Another text, as of another tab: what was undone and redone before belongs to the last one. */
  open(text: string): void;
  /** The text of this tab, as something else has changed it. */
  show(text: string): void;
  insert(text: string): void;
  mark(found: Diagnostic[]): void;
  /** A query begins: no list of completions stays open, no mark of the one before. */
  settle(): void;
  destroy(): void;
}

/**
 * Typing over a selection.  Chromium would keep the look of what it replaces as a style attribute,
 * which the page's policy reports; so the change is made here and not by the browser.
 */
function replaced(event: InputEvent, view: EditorView): boolean {
  const { from, to } = view.state.selection.main;
  const text = event.data;
  if (event.inputType !== "insertText" || !text || from === to || view.composing) return false;
  event.preventDefault();
  const insert = () => view.state.update(view.state.replaceSelection(text), { userEvent: "input.type", scrollIntoView: true });
  const handled = view.state.facet(EditorView.inputHandler).some((handle) => handle(view, from, to, text, insert));
  if (!handled) view.dispatch(insert());
  return true;
}

export function mountEditor(host: HTMLElement, options: EditorOptions): Editor {
  const root = host.shadowRoot ?? host.attachShadow({ mode: "open" });
  const box = document.createElement("div");
  box.style.height = "100%";
  root.replaceChildren(box);
  let known = FALLBACK;
  const language = new Compartment();
  const languageOf = () =>
    sql({
      dialect: SQLDialect.define({
        keywords: known.keywords.join(" ").toLowerCase(),
        types: known.types.join(" ").toLowerCase(),
        builtin: known.functions.map((item) => item.name).join(" ").toLowerCase(),
        doubleDollarQuotedStrings: true,
      }),
    });
  const run = () => {
    options.run();
    return true;
  };
  const stateOf = (doc: string) =>
    EditorState.create({
      doc,
      extensions: [
        Prec.highest(keymap.of([{ key: "Mod-Enter", run }])),
        lineNumbers(),
        history(),
        drawSelection(),
        indentOnInput(),
        bracketMatching(),
        closeBrackets(),
        highlightActiveLine(),
        highlightSelectionMatches(),
        search({ top: true }),
        language.of(languageOf()),
        syntaxHighlighting(style),
        autocompletion({ override: [completionOf(() => known)], icons: false }),
        linter((of) => options.check(of.state.doc.toString()), { delay: 350 }),
        keymap.of([
          ...closeBracketsKeymap,
          ...defaultKeymap,
          ...searchKeymap,
          ...historyKeymap,
          ...completionKeymap,
          ...lintKeymap,
          indentWithTab,
        ]),
        placeholder(innerWidth > NARROW ? "SELECT … (Ctrl+Enter runs the statement at the cursor)" : "SELECT …"),
        ...(innerWidth > NARROW ? [] : [EditorView.lineWrapping]),
        EditorView.domEventHandlers({ beforeinput: replaced }),
        EditorView.contentAttributes.of({ "aria-label": "SQL editor", spellcheck: "false", tabindex: "0" }),
        EditorView.updateListener.of((update) => {
          if (update.docChanged) options.changed(update.state.doc.toString());
        }),
        look,
      ],
    });
  const view = new EditorView({ parent: box, root, state: stateOf(options.text) });
  void dialect().then((found) => {
    known = found;
    view.dispatch({ effects: language.reconfigure(languageOf()) });
  });
  return {
    view,
    selection() {
      const { from, to } = view.state.selection.main;
      return { from, to, text: view.state.sliceDoc(from, to) };
    },
    open(text) {
      if (text !== view.state.doc.toString()) view.setState(stateOf(text));
    },
    show(text) {
      if (text === view.state.doc.toString()) return;
      view.dispatch({ changes: { from: 0, to: view.state.doc.length, insert: text } });
    },
    insert(text) {
      view.dispatch(view.state.replaceSelection(text));
      view.focus();
    },
    mark(found) {
      view.dispatch(setDiagnostics(view.state, found));
    },
    settle() {
      closeCompletion(view);
      view.dispatch(setDiagnostics(view.state, []));
    },
    destroy() {
      view.destroy();
    },
  };
}
