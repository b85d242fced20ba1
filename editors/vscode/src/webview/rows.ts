/**
 * The transcript on the screen. Owns which rows are in the page: a window of a few hundred around what is looked at, however
 * long the conversation. All content becomes text nodes; nothing is ever parsed as markup.
 */

import type { Change, Row } from "../core/rows";

const IN_PAGE = 300;
const STEP = 100;
const NEAR_PX = 200;

export interface RowsEvents {
  onPress(row: string, button: string): void;
  onOlderNeeded(): void;
}

export class RowsView {
  private rows: Row[] = [];
  private readonly nodes = new Map<string, HTMLElement>();
  private first = 0;
  private end = 0;
  private hasOlder = false;
  private isFollowing = true;
  private olderAskedFor = "";

  constructor(
    private readonly host: HTMLElement,
    private readonly events: RowsEvents,
  ) {
    host.addEventListener("scroll", () => this.scrolled());
    // The header wraps, buttons come and go: whoever reads the end goes on reading it.
    new ResizeObserver(() => this.isFollowing && this.toEnd()).observe(host);
  }

  apply(changes: readonly Change[]): void {
    for (const change of changes) {
      switch (change.type) {
        case "reset":
          this.reset(change.rows, change.hasOlder);
          break;
        case "older":
          this.addOlder(change.rows, change.hasOlder);
          break;
        case "put":
          this.put(change.row);
          break;
        case "append":
          this.append(change.id, change.text);
          break;
        case "remove":
          this.remove(change.id);
          break;
      }
    }
    if (this.isFollowing) {
      this.show(Math.max(0, this.rows.length - IN_PAGE), this.rows.length);
      this.toEnd();
    } else if (this.end < this.rows.length && this.end - this.first < IN_PAGE) {
      this.show(this.first, Math.min(this.rows.length, this.first + IN_PAGE));
    }
  }

  /** A new prompt is looked at, wherever the person was reading. */
  follow(): void {
    this.isFollowing = true;
    this.apply([]);
  }

  private toEnd(): void {
    this.host.scrollTop = this.host.scrollHeight;
  }

  private reset(rows: readonly Row[], hasOlder: boolean): void {
    this.host.replaceChildren();
    this.nodes.clear();
    this.rows = [...rows];
    this.hasOlder = hasOlder;
    this.olderAskedFor = "";
    this.first = this.end = 0;
    this.isFollowing = true;
  }

  private addOlder(rows: readonly Row[], hasOlder: boolean): void {
    this.rows.unshift(...rows);
    this.first += rows.length;
    this.end += rows.length;
    this.hasOlder = hasOlder;
    this.showEarlier();
  }

  private put(row: Row): void {
    const index = this.indexOf(row.id);
    if (index < 0) {
      this.rows.push(row);
      return;
    }
    this.rows[index] = row;
    this.nodes.get(row.id)?.replaceWith(this.create(row));
  }

  private append(id: string, text: string): void {
    const index = this.indexOf(id);
    const row = this.rows[index];
    if (row) {
      const longer = { ...row, text: row.text + text };
      this.rows[index] = longer;
      const body = this.nodes.get(id)?.querySelector(".body");
      // Within a code block the text has to be cut into parts anew; else it is one more piece of the last node.
      if (body?.lastChild instanceof Text && !longer.text.includes("```")) {
        body.lastChild.appendData(text);
      } else {
        body?.replaceChildren(...partsOf(longer));
      }
    }
  }

  private remove(id: string): void {
    const index = this.indexOf(id);
    if (index >= 0) {
      this.rows.splice(index, 1);
      this.nodes.get(id)?.remove();
      this.nodes.delete(id);
      this.first -= index < this.first ? 1 : 0;
      this.end -= index < this.end ? 1 : 0;
    }
  }

  /** From the end: what changes is nearly always the newest. */
  private indexOf(id: string): number {
    return this.rows.findLastIndex((each) => each.id === id);
  }

  private scrolled(): void {
    const { scrollTop, scrollHeight, clientHeight } = this.host;
    const below = scrollHeight - scrollTop - clientHeight;
    this.isFollowing = below < 4 && this.end === this.rows.length;
    if (scrollTop < NEAR_PX) {
      this.showEarlier();
    } else if (below < NEAR_PX && this.end < this.rows.length) {
      const end = Math.min(this.rows.length, this.end + STEP);
      this.keepingPlace(() => this.show(Math.max(this.first, end - IN_PAGE), end));
    }
  }

  private showEarlier(): void {
    if (this.first > 0) {
      const first = Math.max(0, this.first - STEP);
      this.isFollowing = false;
      this.keepingPlace(() => this.show(first, Math.min(this.end, first + IN_PAGE)));
    } else if (this.hasOlder && this.rows[0] && this.olderAskedFor !== this.rows[0].id && !this.isFollowing) {
      this.olderAskedFor = this.rows[0].id;
      this.events.onOlderNeeded();
    }
  }

  /** What is looked at stays where it is, whatever comes and goes around it. */
  private keepingPlace(change: () => void): void {
    const top = this.host.getBoundingClientRect().top;
    const seen = [...this.host.children].find((each) => each.getBoundingClientRect().bottom > top);
    const before = seen?.getBoundingClientRect().top ?? 0;
    change();
    if (seen?.isConnected) {
      this.host.scrollTop += seen.getBoundingClientRect().top - before;
    }
  }

  private show(first: number, end: number): void {
    const wanted = new Set(this.rows.slice(first, end).map((each) => each.id));
    for (const [id, node] of this.nodes) {
      if (!wanted.has(id)) {
        node.remove();
        this.nodes.delete(id);
      }
    }
    let next: Element | null = null;
    for (let index = end - 1; index >= first; index--) {
      const row = this.rows[index] as Row;
      const node = this.nodes.get(row.id) ?? this.create(row);
      if (node.parentElement !== this.host || node.nextElementSibling !== next) {
        this.host.insertBefore(node, next);
      }
      next = node;
    }
    this.first = first;
    this.end = end;
  }

  private create(row: Row): HTMLElement {
    const node = document.createElement("section");
    node.className = `row ${row.kind} ${row.state}`;
    node.dataset["id"] = row.id;
    const head = element("div", "head", row.head);
    const body = element("div", "body");
    body.append(...partsOf(row));
    node.append(head, body);
    if (row.buttons.length) {
      const buttons = element("div", "buttons");
      for (const each of row.buttons) {
        const button = element("button", each.isPrimary ? "" : "secondary", each.label);
        button.addEventListener("click", () => this.events.onPress(row.id, each.id));
        buttons.append(button);
      }
      node.append(buttons);
    }
    this.nodes.set(row.id, node);
    return node;
  }
}

/** Prose as text, fenced code and diffs line by line in a block of their own. */
function partsOf(row: Row): Node[] {
  if (row.kind === "ask" || row.kind === "tool") {
    return row.text ? [code(row.text)] : [];
  }
  if (!row.text.includes("```")) {
    return [document.createTextNode(row.text)];
  }
  return row.text
    .split(/^```.*$/m)
    .map((part, index) => (index % 2 ? code(part.replace(/^\n|\n$/g, "")) : document.createTextNode(part)));
}

function code(text: string): HTMLElement {
  const block = element("pre", "");
  const isDiff = /^(?:---|\+\+\+|@@) /m.test(text);
  if (!isDiff) {
    block.textContent = text;
    return block;
  }
  for (const line of text.split("\n")) {
    const kind = line.startsWith("+") ? "added" : line.startsWith("-") ? "removed" : "";
    block.append(element("span", kind, `${line}\n`));
  }
  return block;
}

function element<K extends keyof HTMLElementTagNameMap>(tag: K, className: string, text = ""): HTMLElementTagNameMap[K] {
  const made = document.createElement(tag);
  made.className = className;
  made.textContent = text;
  return made;
}
