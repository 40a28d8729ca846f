-- By a list, and between its ends: the index of the ids leads there, whatever the planner thinks of the list.
{row} >= {first} and {row} <= {last}
and {row} in (select {casts} from unnest({arrays}) as adopt_chosen ({names}))
