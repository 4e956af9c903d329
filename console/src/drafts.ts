// What somebody has typed and not sent: kept for this page of the browser, so that a reload does not lose it.

const HEAD = "yard-draft:" + location.pathname + ":";

/** What was typed there before. */
export function draft<Fields extends Record<string, string>>(form: string, fresh: Fields): Fields {
  try {
    return { ...fresh, ...JSON.parse(sessionStorage.getItem(HEAD + form) ?? "{}") };
  } catch {
    return fresh;
  }
}

export function keepDraft(form: string, fields: Record<string, string>): void {
  sessionStorage.setItem(HEAD + form, JSON.stringify(fields));
}

export function dropDraft(form: string): void {
  sessionStorage.removeItem(HEAD + form);
}

/** Of all forms: the next person has nothing to do with them. */
export function dropDrafts(): void {
  for (const name of Object.keys(sessionStorage)) if (name.startsWith(HEAD)) sessionStorage.removeItem(name);
}
