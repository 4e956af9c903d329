// One colour for each team, the palette of `yard top`. Teams are told apart by their order in the tree of tenants.

const PALETTE = [
  "#4fa3e0", "#e8a33d", "#6cc070", "#d9698f", "#a886e0", "#3fbfb2", "#d4c04a", "#e0785a", "#8fa8c8", "#b5c95a",
];
export const UNNAMED = "#a0a8b4";

let teams: string[] = [];

export function learn(tenants: string[]): void {
  teams = [...new Set([...teams, ...tenants].map((each) => each.split("/")[0]).filter(Boolean))].sort();
}

export function colourOf(tenant: string): string {
  const team = tenant.split("/")[0];
  if (!team) return UNNAMED;
  if (!teams.includes(team)) learn([team]);
  return PALETTE[teams.indexOf(team) % PALETTE.length];
}
