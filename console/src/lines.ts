// A long list in few elements: which line of the document shows which row.

export type Shown<Row> = { rows: Row[]; places: number[] };

/**
 * A row that stays in sight keeps its line, and one that comes into sight takes a line of one that left: so few lines
 * change while a list scrolls. The document then has them out of order, until it is tidied.
 */
export class Lines<Row extends { id: number }> {
  #ids: number[] = [];
  #tidied = 0;

  /** By line, what it shows and as the how-many-th of those in sight; with another number `tidied`, all in order. */
  of(visible: Row[], tidied: number): Shown<Row> {
    const before = new Map(tidied === this.#tidied ? this.#ids.map((id, line) => [id, line]) : []);
    this.#tidied = tidied;
    const places: number[] = new Array(visible.length).fill(-1);
    const left: number[] = [];
    visible.forEach((row, place) => {
      const line = before.get(row.id);
      if (line !== undefined && line < places.length) places[line] = place;
      else left.push(place);
    });
    let next = 0;
    for (let line = 0; next < left.length; line++) if (places[line] < 0) places[line] = left[next++];
    this.#ids = places.map((place) => visible[place].id);
    return { rows: places.map((place) => visible[place]), places };
  }
}
