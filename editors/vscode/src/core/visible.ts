/**
 * Text from models, tools and files, made safe to show: what would mislead the eye becomes visible, what would be taken for
 * markup stays text. Everything from the wire passes through here before it reaches the screen.
 */

/** C1 controls, direction marks, invisible characters, tags; the same list as on the terminal. */
const HIDDEN =
  /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u061c\u115f\u1160\u17b4\u17b5\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\u3164\ufeff\uffa0\ufff9-\ufffb\u{e0000}-\u{e007f}]/gu;

/** Newlines and tabs stay; a C0 control becomes its picture (ESC: ␛), anything else hidden its code point (<U+202E>). */
export function visible(text: string): string {
  return text.replaceAll("\r\n", "\n").replace(HIDDEN, (character) => {
    const code = character.codePointAt(0) as number;
    if (code < 0x20) {
      return String.fromCodePoint(0x2400 + code);
    }
    return code === 0x7f ? "␡" : `<U+${code.toString(16).toUpperCase().padStart(4, "0")}>`;
  });
}

/** For labels and messages: one line, no longer than `limit` characters. */
export function oneLine(text: string, limit = 200): string {
  const line = visible(text).replaceAll("\n", "⏎").replaceAll("\t", " ");
  return line.length > limit ? `${line.slice(0, limit - 1)}…` : line;
}

/** For notifications: `oneLine`, and nothing in it is taken for a link, a command or an icon. */
export function plain(text: string, limit = 200): string {
  return oneLine(text, limit).replaceAll("](", "]\u2009(").replaceAll("$(", "$\u2009(");
}
