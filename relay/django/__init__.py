"""The outbox as a Django app: `manage.py migrate` makes it, `check --database default` says where it is behind.

INSTALLED_APPS = [..., "relay.django"]; the app's label is `outbox`, OUTBOX_SCHEMA names another schema than public.
"""
