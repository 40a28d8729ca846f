"""What `relay doctor` looks at: every check says what it found and, where that is not well, what to do about it."""

from relay.operate.doctor.examination import Patient, doctor
from relay.operate.doctor.findings import Finding, Report, Status

__all__ = ["Finding", "Patient", "Report", "Status", "doctor"]
