// Markdown as elements. Every name and text becomes a text node: nothing of an answer is HTML here.
import { html } from "../vendor/preact.js";
import { lexer } from "../vendor/markdown.js";

const SAFE_LINK = /^(https?:|mailto:)/i;

export function Markdown({ text }) {
  return html`<div class="markdown">${blocks(lexer(text))}</div>`;
}

const blocks = (tokens) => tokens.map(block);

function block(token) {
  switch (token.type) {
    case "space":
      return null;
    case "heading":
      return html`<p class="heading" role="heading" aria-level=${Math.min(token.depth + 2, 6)}>${spans(token.tokens)}</p>`;
    case "code":
      return html`<pre tabindex="0" aria-label=${`Code${token.lang ? `, ${token.lang}` : ""}`}><code>${token.text}</code></pre>`;
    case "list":
      return html`<${token.ordered ? "ol" : "ul"}>${token.items.map((item) => html`<li>${blocks(item.tokens)}</li>`)}<//>`;
    case "blockquote":
      return html`<blockquote>${blocks(token.tokens)}</blockquote>`;
    case "hr":
      return html`<hr />`;
    case "table":
      return html`<div class="scroll" tabindex="0" role="group" aria-label="Table">${table(token)}</div>`;
    case "text":
      return token.tokens ? spans(token.tokens) : token.text;
    case "paragraph":
      return html`<p>${spans(token.tokens)}</p>`;
    default:
      return html`<p>${token.raw}</p>`; // HTML among them: shown as it was written
  }
}

const table = ({ header, rows }) => html`
  <table>
    <thead><tr>${header.map((cell) => html`<th>${spans(cell.tokens)}</th>`)}</tr></thead>
    <tbody>${rows.map((row) => html`<tr>${row.map((cell) => html`<td>${spans(cell.tokens)}</td>`)}</tr>`)}</tbody>
  </table>
`;

const spans = (tokens) => tokens.map(span);

function span(token) {
  switch (token.type) {
    case "strong":
      return html`<strong>${spans(token.tokens)}</strong>`;
    case "em":
      return html`<em>${spans(token.tokens)}</em>`;
    case "del":
      return html`<del>${spans(token.tokens)}</del>`;
    case "codespan":
      return html`<code>${token.text}</code>`;
    case "br":
      return html`<br />`;
    case "link":
      if (!SAFE_LINK.test(token.href)) return token.raw;
      return html`<a href=${token.href} rel="noreferrer noopener" target="_blank">${spans(token.tokens)}</a>`;
    case "text":
    case "escape":
      return token.tokens ? spans(token.tokens) : token.text;
    default:
      return token.raw; // an image, or HTML: as it was written
  }
}
