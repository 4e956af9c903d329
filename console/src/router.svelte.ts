// Where the viewer is: all of it stands in the address, so that it can be sent to others.

export type Place = { page: string; rest: string; query: URLSearchParams };

function read(): Place {
  const [, path, query = ""] = /^#?\/?([^?]*)\??(.*)$/s.exec(location.hash)!;
  const [page, ...rest] = path.split("/");
  return { page: page || "queue", rest: rest.map(decoded).join("/"), query: new URLSearchParams(query) };
}

/** A link that somebody cut off may end within a character: then it is taken as it is. */
function decoded(part: string): string {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

class Router {
  place = $state.raw<Place>(read());

  constructor() {
    addEventListener("hashchange", () => (this.place = read()));
  }

  go(path: string): void {
    location.hash = `#/${path}`;
  }

  /** Another filter on the same page: no new entry in the history. */
  ask(changes: Record<string, string>): void {
    const { page, rest, query } = this.place;
    const next = new URLSearchParams(query);
    for (const [name, value] of Object.entries(changes)) {
      if (value) next.set(name, value);
      else next.delete(name);
    }
    const text = next.toString();
    history.replaceState(null, "", `#/${page}${rest ? `/${rest}` : ""}${text ? `?${text}` : ""}`);
    this.place = { page, rest, query: next };
  }
}

export const router = new Router();
