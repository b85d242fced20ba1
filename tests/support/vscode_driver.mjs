// One VS Code window in a headless browser, driven by lines of JSON: {"do": name, ...arguments} → {"ok": result} or
// {"error": text}. Waits are for what is on the screen, each bounded; nothing sleeps.
import { createRequire } from "node:module";
import { createInterface } from "node:readline";

const [packageJson, chromium, profile, url] = process.argv.slice(2);
const { chromium: browserType } = createRequire(packageJson)("playwright-core");
const TIMEOUT_MS = 20_000;

const context = await browserType.launchPersistentContext(profile, {
  executablePath: chromium,
  headless: true,
  viewport: { width: 1280, height: 900 },
  args: ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage"],
});
const page = context.pages()[0] ?? (await context.newPage());
page.setDefaultTimeout(TIMEOUT_MS);
const messages = [];
page.on("console", (message) => messages.push(`${message.type()}: ${message.text()}`));
page.on("dialog", (dialog) => { messages.push(`dialog: ${dialog.message()}`); void dialog.dismiss(); });

const chat = () => page.frameLocator("iframe.webview").frameLocator("iframe#active-frame");
const chatFrame = async () => (await chat().locator("body").elementHandle()).ownerFrame();
const rowWith = (text) => chat().locator(".row", { hasText: text }).last();

const commands = {
  async open() {
    await page.goto(url);
    await page.locator(".statusbar-item", { hasText: "Basis:" }).first().waitFor();
  },
  async reload() {
    await page.reload();
    await page.locator(".statusbar-item", { hasText: "Basis:" }).first().waitFor();
  },
  async palette({ text }) {
    await page.keyboard.press("F1");
    const input = page.locator(".quick-input-widget input.input");
    await input.waitFor();
    await input.fill(`>${text}`);
    // Clicked, not entered: a key pressed while the list still fades in is lost.
    await page.locator(".quick-input-list .monaco-list-row", { hasText: text }).first().click();
  },
  async pick({ text }) { await page.locator(".quick-input-list .monaco-list-row", { hasText: text }).first().click(); },
  async openFile({ name }) {
    await page.keyboard.press("Control+P");
    const input = page.locator(".quick-input-widget input.input");
    await input.waitFor();
    await input.fill(name);
    await page.locator(".quick-input-list .monaco-list-row", { hasText: name }).first().click();
    await page.locator(".tab.active", { hasText: name }).waitFor();
    await page.locator(".editor-instance .view-line").first().waitFor();
  },
  async keys({ keys }) { for (const key of keys) await page.keyboard.press(key); },
  async write({ text }) { await page.keyboard.type(text); },
  async waitStatus({ text }) { await page.locator(".statusbar-item", { hasText: text }).first().waitFor(); },
  async waitText({ text, selector }) { await page.locator(selector ?? "body", { hasText: text }).first().waitFor(); },
  async waitGone({ text, selector }) { await page.locator(selector, { hasText: text }).first().waitFor({ state: "hidden" }); },
  async clickIn({ selector, text, link }) {
    await page.locator(selector, { hasText: text }).first().locator("a", { hasText: link }).first().click();
  },
  async count({ selector }) { return page.locator(selector).count(); },
  async prompt({ text }) {
    const box = chat().locator("#prompt");
    await box.fill(text);
    await box.press("Enter");
  },
  // The prompt box takes the focus when something was added to it; what is open then closes.
  async waitPromptFocused() {
    await chatFrame().then((frame) => frame.waitForFunction(() => document.activeElement?.id === "prompt" && document.hasFocus()));
  },
  async type({ text }) { await chat().locator("#prompt").fill(text); },
  async waitDraft({ text }) {
    const box = chat().locator("#prompt");
    await box.waitFor();
    const frame = await chatFrame();
    await frame.waitForFunction((wanted) => document.getElementById("prompt").value === wanted, text);
  },
  async waitRow({ text }) { await rowWith(text).waitFor(); },
  async waitBanner({ text, timeoutMs }) {
    await chat().locator("#banner", { hasText: text }).waitFor({ timeout: timeoutMs ?? TIMEOUT_MS });
  },
  // A banner may be gone again before anybody looks: have the page remember it.
  async watchBanner() {
    await chatFrame().then((frame) => frame.evaluate(() => {
      const banner = document.getElementById("banner");
      new MutationObserver(() => { if (banner.textContent) window.bannerSeen = banner.textContent; })
        .observe(banner, { childList: true, characterData: true, subtree: true });
    }));
  },
  async waitBannerSeen() {
    await chatFrame().then((frame) => frame.waitForFunction(() => window.bannerSeen));
  },
  async waitNoBanner() { await chat().locator("#banner").waitFor({ state: "hidden" }); },
  async rows() { return chat().locator(".row").evaluateAll((rows) => rows.map((row) => row.innerText)); },
  async press({ text, button }) { await rowWith(text).locator("button", { hasText: button }).first().click(); },
  async chatEvaluate({ script }) {
    return (await chatFrame()).evaluate(script);
  },
  async screenshot({ path }) { await page.screenshot({ path }); },
  async messages() { return messages; },
};

for await (const line of createInterface({ input: process.stdin })) {
  const { do: name, ...rest } = JSON.parse(line);
  let answer;
  try {
    answer = { ok: (await commands[name](rest)) ?? null };
  } catch (error) {
    answer = { error: String(error.message ?? error).slice(0, 2000) };
  }
  process.stdout.write(`${JSON.stringify(answer)}\n`);
}
await context.close();
