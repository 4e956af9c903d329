// A document for xterm.js under a policy that allows no style of a page's own making.
//
// xterm.js writes <style> elements and style attributes, which the policy forbids. Sheets and declarations that are
// made through the CSSOM are the page's own doing and allowed: what xterm.js writes is turned into these. The build
// (vite.config.ts) gives it this document in place of the page's.

function sheetFor(holder: HTMLElement): HTMLElement {
  const sheet = new CSSStyleSheet();
  document.adoptedStyleSheets = [...document.adoptedStyleSheets, sheet];
  holder.hidden = true;
  Object.defineProperty(holder, "textContent", { set: (text: string) => sheet.replaceSync(text), get: () => "" });
  holder.remove = () => {
    document.adoptedStyleSheets = document.adoptedStyleSheets.filter((each) => each !== sheet);
    Element.prototype.remove.call(holder);
  };
  return holder;
}

function declared(element: HTMLElement): HTMLElement {
  element.setAttribute = (name: string, value: string) => {
    if (name === "style") element.style.cssText = value;
    else Element.prototype.setAttribute.call(element, name, value);
  };
  return element;
}

function made(name: string): HTMLElement {
  return name === "style" ? sheetFor(document.createElement("span")) : declared(document.createElement(name));
}

export const policyDocument = new Proxy(document, {
  get(real, name) {
    if (name === "createElement") return made;
    const value = Reflect.get(real, name, real);
    return typeof value === "function" ? value.bind(real) : value;
  },
  set: (real, name, value) => Reflect.set(real, name, value, real),
});
