, {name} as (
    delete from {child} using mover_gone where {child}.{column} = mover_gone.{key} returning {columns}
)
