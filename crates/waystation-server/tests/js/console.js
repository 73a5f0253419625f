// The console in a real Chromium: it shows, follows, asks before a device departs, and works on a phone, by keyboard and
// without colour. Run by tests/console.rs with the URL of a server and a directory for screenshots.
"use strict";

const assert = require("node:assert");
const puppeteer = require("puppeteer-core");
const [url, shots] = process.argv.slice(2);
const base = `${url}/_waystation`;

async function put(readings) {
  const answer = await fetch(`${base}/databases/cars/readings`, {
    method: "POST",
    headers: { "Content-Type": "application/x-ndjson" },
    body: readings.map((reading) => JSON.stringify(reading)).join("\n"),
  });
  assert.strictEqual(answer.status, 201, await answer.text());
}

const reading = (device, value) => ({ device, sensor: "speed", value });

// Elements without a name that a screen reader could say, and pairs of text and ground with too little contrast.
function faults() {
  const found = [];
  const luminance = (colour) => {
    const parts = colour.match(/[\d.]+/g).slice(0, 3).map((it) => it / 255);
    const [r, g, b] = parts.map((it) => (it <= 0.03928 ? it / 12.92 : ((it + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const ground = (element) => {
    for (let at = element; at; at = at.parentElement) {
      const colour = getComputedStyle(at).backgroundColor;
      if (!/, 0\)$|transparent/.test(colour)) return colour;
    }
    return "rgb(255, 255, 255)";
  };
  for (const element of document.querySelectorAll("button, input, select, [role=region]")) {
    const named = element.textContent || element.ariaLabel || element.labels?.length || element.getAttribute("aria-labelledby");
    if (!named) found.push(`no name: ${element.outerHTML}`);
  }
  for (const element of document.querySelectorAll("h1, h2, p, th, td, dt, dd, li, button, label")) {
    if (!element.textContent.trim() || !element.checkVisibility()) continue;
    const [a, b] = [luminance(getComputedStyle(element).color), luminance(ground(element))].sort((x, y) => y - x);
    if ((a + 0.05) / (b + 0.05) < 4.5) found.push(`contrast: ${element.outerHTML.slice(0, 200)}`);
  }
  if (document.documentElement.scrollWidth > innerWidth) found.push(`wider than the window: ${document.documentElement.scrollWidth}`);
  return found;
}

async function main() {
  await put([reading("car17", 50), reading("car18", 60), reading("<b>x</b>", 1)]);
  const browser = await puppeteer.launch({
    executablePath: process.env.CHROMIUM || "/usr/bin/chromium",
    args: ["--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu"],
  });
  try {
    const page = await browser.newPage();
    const complaints = [];
    page.on("pageerror", (error) => complaints.push(String(error)));
    page.on("console", (message) => message.type() === "error" && complaints.push(message.text()));
    await page.setViewport({ width: 1200, height: 900 });
    await page.goto(`${base}/console`);
    const text = (selector) => page.$eval(selector, (it) => it.textContent);
    await page.waitForFunction(() => document.querySelectorAll("#devices tr").length === 3);
    assert.match(await text("#summary"), /works/);
    assert.deepStrictEqual(
      await page.$$eval("#devices th", (cells) => cells.map((it) => it.textContent).sort()),
      ["<b>x</b>", "car17", "car18"],
    );
    // It follows by itself, and draws the rate.
    await put(Array.from({ length: 500 }, (_, at) => ({ ...reading("car19", at), time: at })));
    await page.waitForFunction(() => [...document.querySelectorAll("#devices th")].some((it) => it.textContent === "car19"));
    await page.waitForFunction(() => document.getElementById("line").getAttribute("points").includes(" "));
    assert.match(await text("#plot-text"), /writes\/s now/);
    assert.match(await text("#figures"), /Write amplification/);
    assert.match(await text("#pins"), /Space under graves/);
    assert.match(await text("#log"), /a warning of the test/);
    for (const scheme of ["light", "dark"]) {
      await page.emulateMediaFeatures([{ name: "prefers-color-scheme", value: scheme }]);
      assert.deepStrictEqual(await page.evaluate(faults), [], scheme);
      await page.screenshot({ path: `${shots}/console-${scheme}.png`, fullPage: true });
    }
    // The filter.
    await page.type("#filter", "CAR1");
    await page.waitForFunction(() => document.querySelectorAll("#devices tr").length === 3);
    // By keyboard alone: the question, no, yes.
    const button = (device) => `button[aria-label="Let ${device} depart"]`;
    await page.focus(button("car18"));
    await page.keyboard.press("Enter");
    await page.waitForSelector("#confirm[open]");
    assert.strictEqual(await page.evaluate(() => document.activeElement.id), "confirm-no", "no is the default");
    await page.screenshot({ path: `${shots}/console-confirm.png` });
    await page.keyboard.press("Escape");
    await page.waitForSelector("#confirm:not([open])");
    assert.strictEqual(await page.$$eval("#devices tr", (rows) => rows.length), 3, "nothing has departed");
    await page.focus(button("car18"));
    await page.keyboard.press("Enter");
    await page.keyboard.press("Tab");
    await page.keyboard.press("Enter");
    await page.waitForFunction(() => document.querySelectorAll("#devices tr").length === 2);
    const gone = await fetch(`${base}/databases/cars/devices/car18`);
    assert.strictEqual(gone.status, 404);
    // A device that left by another way: the page says so.
    await page.click(button("car17"));
    await fetch(`${base}/databases/cars/devices/car17`, { method: "DELETE" });
    await page.click("#confirm-yes");
    await page.waitForFunction(() => document.getElementById("confirm-fault").textContent.includes("has not departed"));
    await page.click("#confirm-no");
    complaints.splice(0);
    // A backup.
    await page.click("#backup");
    await page.waitForFunction(() => document.querySelectorAll("#backup-list li").length === 1);
    // A phone.
    await page.setViewport({ width: 360, height: 740, isMobile: true, hasTouch: true });
    assert.deepStrictEqual(await page.evaluate(faults), [], "phone");
    await page.screenshot({ path: `${shots}/console-phone.png`, fullPage: true });
    assert.deepStrictEqual(complaints, []);
  } finally {
    await browser.close();
  }
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
