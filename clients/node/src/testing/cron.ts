/** The next time of a recurrence after a time, both in ms; undefined: there is none. */
export function nextTime(recurrence: string, after: number, occurrence: number): number | undefined {
  const interval = /^R(\d*)\/([^/]+)\/PT(?:(\d+)H)?(?:(\d+)M)?(?:([\d.]+)S)?$/.exec(recurrence);
  if (interval) {
    const length = (Number(interval[3] ?? 0) * 3600 + Number(interval[4] ?? 0) * 60 + Number(interval[5] ?? 0)) * 1000;
    if (interval[1] && occurrence > Number(interval[1])) return undefined;
    return Date.parse(interval[2]!) + (occurrence - 1) * length;
  }
  const cron = /^cron:(?:(?:CRON_)?TZ=(\S+) )?(.*)$/.exec(recurrence);
  return cron ? cronAfter(cron[2]!.trim().split(/\s+/), cron[1] ?? 'UTC', after) : undefined;
}

const names = ['sun', 'mon', 'tue', 'wed', 'thu', 'fri', 'sat'];
const months = ['jan', 'feb', 'mar', 'apr', 'may', 'jun', 'jul', 'aug', 'sep', 'oct', 'nov', 'dec'];
const bounds = [[0, 59], [0, 23], [1, 31], [1, 12], [0, 7]] as const;

function fieldOf(text: string, i: number): Set<number> {
  const [low, high] = bounds[i]!;
  const value = (t: string): number => {
    const named = i === 4 ? names.indexOf(t.toLowerCase()) : i === 3 ? months.indexOf(t.toLowerCase()) + 1 || -1 : -1;
    const n = named >= 0 ? named : /^\d+$/.test(t) ? Number(t) : NaN;
    if (!(n >= low && n <= high)) throw new Error(`the field ${JSON.stringify(text)} of a recurrence cannot be read`);
    return n;
  };
  const set = new Set<number>();
  for (const part of text.split(',')) {
    const [range, step] = part.split('/');
    const [from, to] = range === '*' ? [low, high] : range!.includes('-') ? range!.split('-').map(value) : [value(range!), step ? high : value(range!)];
    for (let n = from!; n <= to!; n += Number(step ?? 1) || 1) set.add(i === 4 ? n % 7 : n);
  }
  return set;
}

function cronAfter(fields: string[], zone: string, after: number): number | undefined {
  const [minute, hour, day, month, week] = fields.map(fieldOf) as [Set<number>, Set<number>, Set<number>, Set<number>, Set<number>];
  const either = fields[2] !== '*' && fields[4] !== '*';
  const format = new Intl.DateTimeFormat('en-US', { timeZone: zone, hourCycle: 'h23', minute: 'numeric', hour: 'numeric', day: 'numeric', month: 'numeric', year: 'numeric' });
  const end = after + 5 * 366 * 86_400_000;
  for (let at = Math.floor(after / 60_000) * 60_000 + 60_000; at < end; ) {
    const p = Object.fromEntries(format.formatToParts(at).map((x) => [x.type, Number(x.value)])) as Record<string, number>;
    const weekday = new Date(Date.UTC(p['year']!, p['month']! - 1, p['day']!)).getUTCDay();
    const today = either ? day.has(p['day']!) || week.has(weekday) : day.has(p['day']!) && week.has(weekday);
    if (!month.has(p['month']!) || !today || !hour.has(p['hour']!)) at += (60 - p['minute']!) * 60_000;
    else if (!minute.has(p['minute']!)) at += 60_000;
    else return at;
  }
  return undefined;
}
