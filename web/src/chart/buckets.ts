/** A stream's history in buckets, with gaps where there are no events. */

export type Three = [(number | null)[], (number | null)[], (number | null)[]];

export interface Buckets {
  at: number[];
  counts: (number | null)[];
  /** Greatest, least and mean value of each attribute. */
  envelopes: Record<string, Three>;
}

/** A place without values in front of each bucket that does not follow the one before it. */
export function withGaps(found: Buckets, width: number): Buckets {
  const steps = found.at.slice(1).map((at, i) => at - (found.at[i] as number));
  const usual = Math.min(...steps, 2 * width);
  const made: Buckets = { at: [], counts: [], envelopes: {} };
  for (const name of Object.keys(found.envelopes)) made.envelopes[name] = [[], [], []];
  found.at.forEach((at, i) => {
    if (i && at - (found.at[i - 1] as number) > 1.5 * usual) {
      made.at.push((found.at[i - 1] as number) + usual);
      made.counts.push(null);
      for (const three of Object.values(made.envelopes)) for (const one of three) one.push(null);
    }
    made.at.push(at);
    made.counts.push(found.counts[i] ?? null);
    for (const [name, three] of Object.entries(found.envelopes)) three.forEach((one, k) => made.envelopes[name]?.[k]?.push(one[i] ?? null));
  });
  return made;
}

/** Indexes of values that follow each other without a gap. */
export function runsOf(at: number[], values: (number | null)[]): number[][] {
  const runs: number[][] = [];
  let open: number[] | null = null;
  at.forEach((_, i) => {
    if (values[i] === null) open = null;
    else if (open) open.push(i);
    else runs.push((open = [i]));
  });
  return runs;
}
