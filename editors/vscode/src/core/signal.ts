/** The smallest way to tell several listeners. */

export type Listener<T> = (value: T) => void;

export class Signal<T> {
  private readonly listeners = new Set<Listener<T>>();

  /** Returns what ends the listening; its shape is the one editors keep subscriptions in. */
  on(listener: Listener<T>): { dispose(): void } {
    this.listeners.add(listener);
    return { dispose: () => this.listeners.delete(listener) };
  }

  emit(value: T): void {
    for (const each of [...this.listeners]) {
      each(value);
    }
  }
}
