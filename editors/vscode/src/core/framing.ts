/** LSP's framing: a `Content-Length` header, an empty line, that many bytes of UTF-8. */

const MAX_FRAME_BYTES = 64 * 1024 * 1024;
const MAX_HEADER_BYTES = 4096;
const HEADER_END = Buffer.from("\r\n\r\n");

export class FramingError extends Error {}

export function encode(message: unknown): Buffer {
  const body = Buffer.from(JSON.stringify(message), "utf8");
  return Buffer.concat([Buffer.from(`Content-Length: ${body.length}\r\n\r\n`, "ascii"), body]);
}

/** Cuts a byte stream into message bodies. A large body is put together once, when its last byte is there. */
export class Decoder {
  private chunks: Buffer[] = [];
  private buffered = 0;
  private needed = 0;
  private bodyLength: number | undefined;

  /** Takes bytes, returns the bodies they complete. Throws `FramingError`; the stream can't be used after that. */
  feed(data: Buffer): string[] {
    this.chunks.push(data);
    this.buffered += data.length;
    const bodies: string[] = [];
    while (this.buffered >= this.needed) {
      const all = this.chunks.length === 1 ? (this.chunks[0] as Buffer) : Buffer.concat(this.chunks);
      const rest = this.bodyLength === undefined ? this.takeHeader(all) : this.takeBody(all, this.bodyLength, bodies);
      if (rest === undefined) {
        this.chunks = [all];
        break;
      }
      this.chunks = [rest];
      this.buffered = rest.length;
    }
    return bodies;
  }

  private takeHeader(all: Buffer): Buffer | undefined {
    const end = all.indexOf(HEADER_END);
    if (end < 0) {
      if (all.length > MAX_HEADER_BYTES) {
        throw new FramingError("the header has no end");
      }
      return undefined;
    }
    const match = /^content-length:[ \t]*(\d+)[ \t]*$/im.exec(all.toString("ascii", 0, end).replaceAll("\r", ""));
    const length = Number(match?.[1]);
    if (!match || length > MAX_FRAME_BYTES) {
      throw new FramingError(match ? `a message of ${length} bytes is too large` : "a header without Content-Length");
    }
    this.bodyLength = this.needed = length;
    return all.subarray(end + HEADER_END.length);
  }

  private takeBody(all: Buffer, length: number, bodies: string[]): Buffer {
    bodies.push(all.toString("utf8", 0, length));
    this.bodyLength = undefined;
    this.needed = 1;
    return all.subarray(length);
  }
}
