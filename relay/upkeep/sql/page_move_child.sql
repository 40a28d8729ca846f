-- What hangs on a row goes in the statement that takes the row, or stays with it.
, {name} as (
    delete from {child} using mover_gone where {child}.{column} operator({order}.=) mover_gone.{key} returning {columns}
)
