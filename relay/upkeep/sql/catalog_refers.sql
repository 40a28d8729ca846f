-- What hangs on a row is found by the operator that tells rows apart, or others would be found.
select from {child} as child
  join {parent} as parent on child.{column} operator({order}.=) parent.{key}
 limit 0
