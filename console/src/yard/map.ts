// The map of GPUs: where each node stands, cluster by cluster and rack by rack, and how it is drawn.

import { colourOf, UNNAMED } from "../colours";
import type { GpuReply, NodeGpusReply } from "../wire";

/** How much of a GPU is used, in thousandths, by which tenant and which job. */
export type Cell = NodeGpusReply["gpus"][number];
/** A slice of a GPU that is cut by MIG: its profile, where it lies as parts of the GPU's memory, and the job in it. */
export type Slice = { profile: string; from: number; part: number; job: string };
export type Known = { uses: Map<string, GpuReply>; slices: Map<string, Slice[]> };
export type Box = { node: NodeGpusReply; x: number; y: number; wide: number; high: number; columns: number };
export type Layout = { boxes: Box[]; heads: { text: string; x: number; y: number }[]; wide: number; high: number };
export type View = { zoom: number; x: number; y: number; wide: number; high: number };
export type Spot = { box: Box; gpu: number };

export const BY = ["tenant", "use", "waste", "temperature", "health"] as const;
export type By = (typeof BY)[number];
export const IDLE_PCT = 5;

const CELL = 16;
const GAP = 3;
const MARGIN = 6;
const HEAD = 18;
/** Nodes above each other in a rack. */
const RACK_NODES = 8;
/** Widths that are tried, as multiples of the frame's. */
const WIDTHS = [1, 1.4, 2, 2.8, 4, 5.6, 8];

export function keyOf(cluster: string, node: string, gpu: number): string {
  return `${cluster}\n${node}\n${gpu}`;
}

function sized(gpus: number): [columns: number, wide: number, high: number] {
  const columns = Math.min(8, Math.max(4, gpus));
  const rows = Math.max(1, Math.ceil(gpus / columns));
  return [columns, columns * (CELL + GAP) + 2 * MARGIN, rows * (CELL + GAP) + HEAD + MARGIN];
}

/** The layout that is seen largest as a whole in a frame. */
export function laidOut(nodes: NodeGpusReply[], wide: number, high: number): Layout {
  const groups = grouped(nodes);
  const tries = WIDTHS.map((times) => flowed(groups, wide * times));
  return tries.reduce((best, each) => (fitting(each, wide, high) > fitting(best, wide, high) * 1.02 ? each : best));
}

/** How much it may be enlarged so that all of it is seen. */
export function fitting(layout: Layout, wide: number, high: number): number {
  return Math.min((high - 10) / layout.high, (wide - 20) / layout.wide);
}

type Group = { head: string; racks: { name: string; nodes: NodeGpusReply[] }[] };

function grouped(nodes: NodeGpusReply[]): Group[] {
  const clusters = Map.groupBy(nodes, (node) => node.cluster);
  return [...clusters.keys()].sort().map((cluster) => {
    const some = clusters.get(cluster)!;
    const racks = Map.groupBy(some, (node) => node.rack ?? "");
    return {
      head: `${cluster}: ${some.length.toLocaleString()} ${some.length === 1 ? "node" : "nodes"}`,
      racks: [...racks.keys()].sort((a, b) => a.localeCompare(b, undefined, { numeric: true })).map((name) => ({ name, nodes: racks.get(name)! })),
    };
  });
}

/** Clusters below each other; racks side by side, each a stack of its nodes; nodes without a rack in rows. */
function flowed(groups: Group[], wide: number): Layout {
  const made: Layout = { boxes: [], heads: [], wide: 1, high: 4 };
  for (const { head, racks } of groups) {
    made.heads.push({ text: head, x: 2, y: made.high + 14 });
    made.high += 24;
    let [x, y, tallest] = [0, made.high, 0];
    const room = (w: number) => {
      if (x && x + w > wide) [x, y, tallest] = [0, y + tallest + 8, 0];
    };
    for (const { name, nodes } of racks) {
      const stack = name ? RACK_NODES : 1;
      for (let first = 0; first < nodes.length; first += stack) {
        const some = nodes.slice(first, first + stack);
        const sizes = some.map((node) => sized(node.gpus.length));
        const w = Math.max(...sizes.map((each) => each[1]));
        room(w);
        let top = y;
        if (name) {
          made.heads.push({ text: first ? "" : `rack ${name}`, x: x + 2, y: top + 11 });
          top += 16;
        }
        some.forEach((node, index) => {
          const [columns, own, h] = sizes[index];
          made.boxes.push({ node, x, y: top, wide: own, high: h, columns });
          top += h + (name ? 4 : 0);
        });
        made.wide = Math.max(made.wide, x + w);
        tallest = Math.max(tallest, top - y);
        x += w + 8;
      }
    }
    made.high = y + tallest + 18;
  }
  return made;
}

export function spotAt(layout: Layout, view: View, px: number, py: number): Spot | null {
  const [x, y] = [(px - view.x) / view.zoom, (py - view.y) / view.zoom];
  const box = layout.boxes.find((each) => x >= each.x && x <= each.x + each.wide && y >= each.y && y <= each.y + each.high);
  if (!box) return null;
  const [column, row] = [Math.floor((x - box.x - MARGIN) / (CELL + GAP)), Math.floor((y - box.y - HEAD) / (CELL + GAP))];
  const gpu = column >= 0 && column < box.columns && row >= 0 ? row * box.columns + column : -1;
  return { box, gpu: gpu < box.node.gpus.length ? gpu : -1 };
}

export function isWasted(cell: Cell, use: GpuReply | undefined): boolean {
  return cell[0] > 0 && use !== undefined && use.busy_pct !== null && use.busy_pct < IDLE_PCT;
}

export const LEGEND: Record<Exclude<By, "tenant">, [colour: string, text: string][]> = {
  use: [["#4fa3e0", "whole in use"], ["#9cc9ec", "part in use"], ["#6cc070", "idle"]],
  waste: [["#e05a5a", "held and does nothing"], ["#6cc070", "idle"], ["#4fa3e0", "works"], ["#a0a8b4", "not measured"]],
  temperature: [["#4fa3e0", "below 50 °C"], ["#e8a33d", "50 to 80 °C"], ["#e05a5a", "above 80 °C"]],
  health: [["#6cc070", "up"], ["#e8a33d", "drained"], ["#e05a5a", "down"]],
};

function colour(by: By, node: NodeGpusReply, cell: Cell, use: GpuReply | undefined, soft: string): string {
  if (by === "use") return cell[0] ? (cell[0] >= 1000 ? "#4fa3e0" : "#9cc9ec") : node.state === "UP" ? "#6cc070" : soft;
  if (by === "health") return node.state === "UP" ? "#6cc070" : node.state === "DOWN" ? "#e05a5a" : "#e8a33d";
  if (by === "waste") {
    if (!cell[0]) return node.state === "UP" ? "#6cc070" : soft;
    return isWasted(cell, use) ? "#e05a5a" : use === undefined || use.busy_pct === null ? "#a0a8b4" : "#4fa3e0";
  }
  if (by === "temperature") {
    const warm = use?.temperature_c ?? null;
    return warm === null ? soft : warm < 50 ? "#4fa3e0" : warm < 80 ? "#e8a33d" : "#e05a5a";
  }
  if (!cell[0]) return soft;
  return cell[1] ? colourOf(cell[1]) : UNNAMED;
}

function matching(node: NodeGpusReply, search: string): boolean {
  return (
    !search ||
    `${node.name} ${node.rack} ${node.gpu_model}`.toLowerCase().includes(search) ||
    node.gpus.some((cell) => `${cell[1]} ${cell[2]}`.toLowerCase().includes(search))
  );
}

export function draw(
  surface: CanvasRenderingContext2D,
  layout: Layout,
  view: View,
  look: { by: By; search: string; dark: boolean; known: Known; ratio: number },
): void {
  const { by, dark, known, ratio } = look;
  const [line, soft, text, quiet] = dark ? ["#3a4653", "#35414d", "#e2e8ee", "#a3afbb"] : ["#c7d0d9", "#dbe2e9", "#1c2733", "#566372"];
  surface.setTransform(ratio, 0, 0, ratio, 0, 0);
  surface.clearRect(0, 0, view.wide, view.high);
  surface.setTransform(ratio * view.zoom, 0, 0, ratio * view.zoom, view.x * ratio, view.y * ratio);
  surface.font = "11px system-ui, sans-serif";
  surface.fillStyle = text;
  const [left, right] = [-view.x / view.zoom, (view.wide - view.x) / view.zoom];
  const [top, bottom] = [-view.y / view.zoom, (view.high - view.y) / view.zoom];
  if (view.zoom > 0.25)
    for (const head of layout.heads) if (head.y > top && head.y - 12 < bottom) surface.fillText(head.text, head.x, head.y);
  surface.lineWidth = 1;
  for (const box of layout.boxes) {
    if (box.y + box.high < top || box.y > bottom || box.x + box.wide < left || box.x > right) continue;
    const { node } = box;
    surface.globalAlpha = matching(node, look.search) ? 1 : 0.25;
    if (view.zoom > 0.3 || node.state !== "UP") {
      surface.strokeStyle = node.state === "UP" ? line : "#e8a33d";
      surface.strokeRect(box.x + 0.5, box.y + 0.5, box.wide, box.high);
    }
    if (view.zoom > 0.45) {
      surface.fillStyle = node.state === "UP" ? quiet : "#e8a33d";
      surface.fillText(node.state === "UP" ? node.name : `${node.name} ${node.state.toLowerCase()}`, box.x + MARGIN, box.y + 13, box.wide - 10);
    }
    for (let index = 0; index < node.gpus.length; index++) {
      const cell = node.gpus[index];
      const x = box.x + MARGIN + (index % box.columns) * (CELL + GAP);
      const y = box.y + HEAD + Math.floor(index / box.columns) * (CELL + GAP);
      const key = keyOf(node.cluster, node.name, index);
      const slices = known.slices.size ? known.slices.get(key) : undefined;
      const use = known.uses.size ? known.uses.get(key) : undefined;
      const part = cell[0] && by === "tenant" ? Math.max(0.2, cell[0] / 1000) : 1;
      if (part < 1 || slices?.length) {
        surface.fillStyle = soft;
        surface.fillRect(x, y, CELL, CELL);
      }
      if (slices?.length) drawSlices(surface, x, y, slices, use, dark ? "#a3afbb" : "#566372");
      else {
        surface.fillStyle = colour(by, node, cell, use, soft);
        surface.fillRect(x, y + CELL * (1 - part), CELL, CELL * part);
      }
    }
  }
  surface.globalAlpha = 1;
}

/** A GPU that is cut: each slice over the slots that it has. */
function drawSlices(surface: CanvasRenderingContext2D, x: number, y: number, slices: Slice[], use: GpuReply | undefined, line: string): void {
  surface.strokeStyle = line;
  surface.lineWidth = 0.5;
  for (const slice of slices) {
    const [from, wide] = [x + slice.from * CELL, slice.part * CELL];
    const job = slice.job ? use?.jobs.find((each) => each.label === slice.job) : undefined;
    if (slice.job) {
      surface.fillStyle = job?.tenant ? colourOf(job.tenant) : UNNAMED;
      surface.fillRect(from, y, wide, CELL);
    }
    surface.strokeRect(from + 0.25, y + 0.25, wide - 0.5, CELL - 0.5);
  }
  surface.lineWidth = 1;
}
