// CodeMirror in a shadow root, where its styles need no exception from the security policy.
import {
  EditorState,
  EditorView,
  HighlightStyle,
  StreamLanguage,
  defaultKeymap,
  history,
  historyKeymap,
  keymap,
  lineNumbers,
  lintGutter,
  lintKeymap,
  linter,
  syntaxHighlighting,
  tags,
  toml,
  unifiedMergeView,
} from "../vendor/codemirror.js";
import { effect, html, useEffect, useRef } from "../vendor/preact.js";

const LINT_PAUSE_MS = 300; // without a key press

const theme = EditorView.theme({
  "&": { color: "var(--text)", backgroundColor: "var(--ground)", fontSize: "13px", maxHeight: "56vh" },
  ".cm-scroller": { fontFamily: "var(--mono)", overflow: "auto" },
  ".cm-gutters": { color: "var(--quiet)", backgroundColor: "var(--sunk)", border: "none" },
  ".cm-content": { caretColor: "var(--text)" },
  "&.cm-focused .cm-cursor": { borderLeftColor: "var(--text)" },
  ".cm-tooltip": { color: "var(--text)", backgroundColor: "var(--surface)", border: "1px solid var(--line)", maxWidth: "60ch" },
  ".cm-changedLine": { backgroundColor: "color-mix(in srgb, var(--good) 14%, transparent)" },
  ".cm-deletedChunk": { backgroundColor: "color-mix(in srgb, var(--bad) 14%, transparent)" },
});

const colours = HighlightStyle.define([
  { tag: tags.comment, color: "var(--quiet)" },
  { tag: [tags.string, tags.atom, tags.bool], color: "var(--deep)" },
  { tag: [tags.propertyName, tags.number], color: "var(--fast)" },
]);

const shared = (label) => [
  lineNumbers(),
  StreamLanguage.define(toml),
  syntaxHighlighting(colours),
  theme,
  EditorView.lineWrapping,
  EditorView.contentAttributes.of({ "aria-label": label }),
];

/** An element with CodeMirror in it; made anew when one of `inputs` changes. */
function useCode(make, inputs) {
  const place = useRef(null);
  const view = useRef(null);
  useEffect(() => {
    const root = place.current.shadowRoot ?? place.current.attachShadow({ mode: "open" });
    view.current = new EditorView({ root, parent: root, ...make() });
    return () => view.current.destroy();
  }, inputs);
  return { place, view };
}

/**
 * Edits the signal `text`. `check(text)` resolves to [{ line, column, message, severity }], shown at
 * their lines. The signal is followed at once and not by rendering: a text that came a frame late would
 * undo what was typed meanwhile, which would come back as a change, and so on.
 */
export function Editor({ label, text, check, isReadOnly }) {
  const { place, view } = useCode(
    () => ({
      doc: text.peek(),
      extensions: [
        ...shared(label),
        history(),
        keymap.of([...defaultKeymap, ...historyKeymap, ...lintKeymap]),
        lintGutter(),
        linter(async ({ state }) => (await check(state.doc.toString())).map((fault) => placed(fault, state.doc)), {
          delay: LINT_PAUSE_MS,
        }),
        EditorState.readOnly.of(isReadOnly),
        EditorView.updateListener.of((update) => {
          if (update.docChanged) text.value = update.state.doc.toString();
        }),
      ],
    }),
    [isReadOnly],
  );
  useEffect(
    () =>
      effect(() => {
        const wanted = text.value;
        const doc = view.current.state.doc;
        if (doc.toString() !== wanted) view.current.dispatch({ changes: { from: 0, to: doc.length, insert: wanted } });
      }),
    [isReadOnly],
  );
  return html`<div class="code" ref=${place}></div>`;
}

function placed({ line, column, message, severity }, doc) {
  const at = doc.line(Math.min(Math.max(line ?? 1, 1), doc.lines));
  const from = Math.min(at.from + Math.max((column ?? 1) - 1, 0), at.to);
  return { from, to: Math.max(from, at.to), message, severity };
}

/** What `text` changes in `original`, line by line. */
export function Difference({ label, original, text }) {
  const { place } = useCode(
    () => ({
      doc: text,
      extensions: [
        ...shared(label),
        EditorState.readOnly.of(true),
        EditorView.editable.of(false),
        EditorView.contentAttributes.of({ tabindex: "0" }),
        unifiedMergeView({ original, mergeControls: false }),
      ],
    }),
    [original, text],
  );
  return html`<div class="code" ref=${place}></div>`;
}
